"""Every flow by its name: what `openk2 run STAGE` and the deployments offer."""

from __future__ import annotations

from flows.corpus import corpus
from flows.posttrain import posttrain
from flows.pretrain import pretrain
from flows.recipe import recipe
from flows.refresh import refresh
from flows.release import release
from flows.rephrase import rephrase
from flows.report import report
from flows.tokens import tokens

STAGES = {
    "recipe": recipe,
    "corpus": corpus,
    "refresh": refresh,
    "rephrase": rephrase,
    "tokens": tokens,
    "pretrain": pretrain,
    "posttrain": posttrain,
    "release": release,
    "report": report,
}
TRAINING = ("recipe", "pretrain", "posttrain")
"""Those that train, and so decide in which precision (`flows.precision`)."""

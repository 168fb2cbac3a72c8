"""What a network amounts to: sums that agree, and K2's own figures."""

from __future__ import annotations

import pytest

from model.config import ModelConfig
from model.describe import describe
from model.sizes import MODEL_PRESETS


def test_k2_beside_its_report():
    told = describe("k2", MODEL_PRESETS["k2"])
    assert (told.total, told.router_biases) == (1_026_408_232_448, 23_040)
    assert told.trainable == 1_026_408_209_408
    assert told.active == 32_861_477_888
    assert told.reported is not None
    assert told.total == pytest.approx(told.reported.total, rel=0.02)
    assert told.active == pytest.approx(told.reported.active, rel=0.01)
    assert told.cache.latent == 61 * (512 + 64) * 2
    assert told.cache.plain == 61 * 64 * (192 + 128) * 2


@pytest.mark.parametrize("name", MODEL_PRESETS)
def test_the_components_add_up(name):
    told = describe(name, MODEL_PRESETS[name])
    assert sum(part.parameters for part in told.components) == told.total
    assert sum(part.active for part in told.components) == told.active
    assert (told.reported is not None) == (name == "k2")


def test_flops_are_told_at_the_windows_of_k2s_stages():
    rows = {row.sequence_length: row for row in describe("k2", ModelConfig().with_yarn(32)).flops}
    assert list(rows) == [4096, 32_768, 131_072]
    for row in rows.values():
        assert row.training == 3 * row.forward
    # what does not grow with the sequence is the same at every length: twice the weights that multiply
    fixed = {round(row.forward * (1 - row.scores)) for row in rows.values()}
    assert max(fixed) - min(fixed) <= 1
    assert max(fixed) == pytest.approx(2 * (32_861_477_888 - 163_840 * 7168 - 1_006_592), rel=1e-9)

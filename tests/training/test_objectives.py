"""Every objective of post-training: its update is the plain one's, and two ranks train what one trains."""

from __future__ import annotations

import copy
import shutil
import signal
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from model.attention import document_mask
from model.convert import as_served
from model.quantize import fake_quantize_experts
from model.transformer import Transformer, update_router_bias
from tasks.agentic.config import TaskConfig
from tasks.code import closure
from tests.posttraining import DIALOGUES, RL, SFT, dialogues_artifact, model_artifact, tiny_config, write_job
from tests.posttraining import World as Inputs
from tests.training.ranks import Launched, launch, run_ranks, stop_after, wait_stopped
from tests.training.runs import lines
from training import checkpoint
from training.inputs import load_chat, load_model, load_splits
from training.job import Job, JobError
from training.loader import Loader
from training.mesh import Mesh, arrange
from training.muonclip import MuonClip
from training.objective import Objective
from training.packing import IGNORED, Packed
from training.parallel import World
from training.rl.config import RlConfig
from training.rl.curriculum import Curriculum
from training.rl.objective import k2_objective
from training.rl.rollout import Group, roll_out
from training.rl.train import Reinforcement
from training.rl.tree import Tree, TreeBatch, pack_trees, tree_log_probs
from training.sft import Tuning
from training.sft_config import SftConfig
from training.trainer import DONE, Trainer

UPDATES = 10
EXACT = {"newton_schulz_dtype": "float32"}
CONFIGS: dict[type[Objective], dict[str, Any]] = {
    Tuning: SFT
    | {
        "rows": 5,  # that no two ranks divide
        "int4": True,
        "learning_rate": 1e-4,  # larger ones move weights across the borders of INT4, where rounding decides
        "max_updates": UPDATES,
        "final_learning_rate": 2e-5,
        "text_samples": 3,
        "text_weight": 0.5,
        "evaluate_every": 4,
        "evaluate_prompts": 7,
        "evaluate_samples": 2,
        "optimizer": EXACT,
        "gradient_clip": 0.5,
        "run": {"micro_batch": 2, "checkpoint_every": 3},
    },
    Reinforcement: RL
    | {
        "seed": 2,
        "iterations": UPDATES // 2,
        "prompts": 7,
        "responses": 4,
        "updates": 2,
        "learning_rate": 0.005,
        "evaluate_prompts": 5,
        "evaluate_samples": 1,
        "ptx_samples": 3,
        "dialogue_rows": 3,
        "dialogue_sequence_length": 160,
        "optimizer": EXACT | {"weight_decay": 0.0},
        "run": {"micro_tokens": 256, "micro_batch": 1, "checkpoint_every": 2},
    },
}
KINDS = pytest.mark.parametrize("kind", CONFIGS, ids=lambda kind: kind.__name__)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """The artifacts of both: what they begin with."""
    return Inputs(tmp_path_factory.mktemp("objectives"))


@pytest.fixture(scope="module")
def alone(inputs: Inputs) -> Callable[[type[Objective]], Path]:
    """What the run of one rank left, by its kind, with the gradients of its first update in `first.safetensors`."""

    @cache
    def left(kind: type[Objective]) -> Path:
        path = job_of(kind, inputs, inputs.root / f"alone-{kind.__name__}")
        run(kind, path, gradients=path.with_name("first.safetensors"))
        return path.parent

    return left


def artifacts(kind: type[Objective], inputs: Inputs) -> dict[str, Any]:
    shared = {"tokens": inputs.tokens, "tokenizer": inputs.tokenizer}
    if kind is Tuning:
        wide_base = model_artifact(inputs.root / "wide", wide(), "base")
        return {"base": wide_base, "dialogues": inputs.dialogues, **shared}
    policy = model_artifact(inputs.root / "hesitant", hesitant(inputs), "sft")
    rested = TaskConfig(family="copy", size=2, train=20, development=5, test=5)
    two = DIALOGUES.model_copy(update={"tasks": (*DIALOGUES.tasks, rested)})
    return {"sft": policy, "dialogues": dialogues_artifact(inputs.root / "two", inputs.tokenizer, two), **shared}


def wide() -> Transformer:
    """A model whose experts INT4 groups fill."""
    return Transformer(tiny_config(moe_intermediate_size=32, initializer_range=0.2), seed=1)


def hesitant(inputs: Inputs, model: Transformer | None = None) -> Transformer:
    """A model that ends some replies at once and is cut in others, so that there are rewards to learn from."""
    model, chat = model or load_model(inputs.base.uri), load_chat(inputs.tokenizer.uri)
    problem = load_splits(inputs.dialogues.uri).train.problems[0]
    with torch.no_grad():
        hidden_D = model(torch.tensor([chat.prompt(problem.messages, problem.tools)])).hidden_BSD[0, -1]
        model.lm_head.weight[chat.stop] = 4.5 * hidden_D / hidden_D.square().sum()
    return model


def job_of(kind: type[Objective], inputs: Inputs, folder: Path, **changes: Any) -> Path:
    return write_job(folder, CONFIGS[kind] | changes, artifacts(kind, inputs))


def run(kind: type[Objective], path: Path, world: World | None = None, gradients: Path | None = None) -> Trainer:
    """A job in this process as one rank of `world`; the first update's gradients go to the file `gradients`."""
    torch.set_num_threads(1)
    job = Job.read(path)
    config: Any = kind.settings.model_validate(job.config)
    mesh = Mesh() if world is None else arrange(world, config.run.layout, 60)
    trainer = Trainer(kind, config, job, mesh, torch.device("cpu"))
    accumulate: Callable[..., Any] = trainer.accumulate

    def kept(parts: Any) -> Any:
        totals = accumulate(parts)
        if gradients is not None and not gradients.exists() and mesh.world.rank == 0:
            found = {name: p.grad for name, p in trainer.model.named_parameters() if p.grad is not None}
            save_file(found, gradients)
        return totals

    trainer.accumulate = kept  # type: ignore[method-assign]
    assert trainer.run() == DONE
    return trainer


def close(one: Any, other: Any) -> bool:
    """Equal to the rounding of float32 sums."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(close(*pair) for pair in zip(one, other, strict=True))
    return one == (pytest.approx(other, rel=1e-4, abs=1e-6) if isinstance(one, float) else other)


def assert_close_runs(one: Path, other: Path) -> None:
    for mine, theirs in zip(lines(one), lines(other), strict=True):
        apart = [key for key in mine if not close(mine[key], theirs.get(key))]
        assert not apart, [(mine["step"], key, mine[key], theirs.get(key)) for key in apart]
    first, second = (checkpoint.load_model(folder / "final").state_dict() for folder in (one, other))
    for name, tensor in first.items():
        torch.testing.assert_close(
            tensor, second[name], rtol=1e-4, atol=5e-5, msg=lambda text, at=name: f"{at}: {text}"
        )


@KINDS
def test_two_ranks_train_what_one_trains(
    kind: type[Objective], inputs: Inputs, alone: Callable[[type[Objective]], Path], tmp_path: Path
) -> None:
    """Losses, the first gradient, evaluations and ten updates; then one rank ends what two began, and the other way."""
    one, two = alone(kind), job_of(kind, inputs, tmp_path / "two")

    def work(world: World) -> None:
        run(kind, two, world, tmp_path / "two.safetensors")

    assert run_ranks(2, work) == [None, None]
    gradients, others = load_file(one / "first.safetensors"), load_file(tmp_path / "two.safetensors")
    for name, gradient in gradients.items():
        torch.testing.assert_close(
            others[name], gradient, rtol=1e-4, atol=1e-6, msg=lambda text, at=name: f"{at}: {text}"
        )
    assert_close_runs(tmp_path / "two", one)
    # cut back to an early checkpoint, and ended by another number of ranks
    for name, folder in (("one", one), ("two", tmp_path / "two")):
        again = shutil.copytree(folder, tmp_path / f"{name}-again")
        shutil.rmtree(again / "final")
        for later in checkpoint.checkpoints(again / "checkpoints")[1:]:
            shutil.rmtree(later)
    one_again, two_again = (job_of(kind, inputs, tmp_path / name) for name in ("one-again", "two-again"))
    run(kind, two_again)

    def resume(world: World) -> None:
        run(kind, one_again, world)

    assert run_ranks(2, resume) == [None, None]
    assert_close_runs(tmp_path / "two-again", one)
    assert_close_runs(tmp_path / "one-again", one)


@KINDS
@pytest.mark.parametrize("cut", ["expert", "pipeline"])
def test_a_model_cut_over_two_ranks_is_trained_alike(
    kind: type[Objective], cut: str, inputs: Inputs, alone: Callable[[type[Objective]], Path], tmp_path: Path
) -> None:
    """Half of the experts or of the layers on each rank; replies are sampled from the whole model."""
    two = job_of(kind, inputs, tmp_path / "two", run=CONFIGS[kind]["run"] | {"layout": {cut: 2}})

    def work(world: World) -> None:
        run(kind, two, world)

    assert run_ranks(2, work) == [None, None]
    assert_close_runs(tmp_path / "two", alone(kind))


# --------------------------------------------------------------------------------------------- the plain references


def stepped(model: Transformer, optimizer: MuonClip, loss: Tensor, maxima: Tensor, rate: float, clip: float) -> float:
    """One update of a single process that knows neither ranks nor micro-batches; the gradient's norm."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), clip))
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step(max_logits_LH=maxima)
    return norm


def assert_plain(folder: Path, plain: list[tuple[float, float]], model: Transformer) -> None:
    """The run in `folder` had these losses and norms and left this model."""
    updates = [line for line in lines(folder) if line["event"] == "update"]
    for line, (loss, norm) in zip(updates, plain, strict=True):
        assert line["loss"] + line["aux_loss"] == pytest.approx(loss, rel=1e-4, abs=1e-6)
        assert line["gradient_norm"] == pytest.approx(norm, rel=1e-4, abs=1e-6)
    final = checkpoint.load_model(folder / "final").state_dict()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(final[name], tensor, rtol=1e-4, atol=5e-5, msg=lambda text, at=name: f"{at}: {text}")


def test_sft_is_the_plain_update(alone: Callable[[type[Objective]], Path]) -> None:
    folder = alone(Tuning)
    job = Job.read(folder / "job.json")
    config = SftConfig.model_validate(job.config)
    model = load_model(job.inputs["base"])
    fake_quantize_experts(model)
    optimizer = MuonClip.for_model(model, config.optimizer)
    train = load_splits(job.inputs["dialogues"]).train
    packed = Packed(train.examples, config.sequence_length, config.rows, config.seed, model.config.pad_token_id)
    tokens = Loader(job.inputs["tokens"], "train", None, config.seed, config.text_sequence_length)
    plain = []
    for update in range(UPDATES):
        tokens_BS, targets_BS, ids_BS, positions_BS = packed.batch(update)
        output = model(tokens_BS, positions_BS=positions_BS, document_ids_BS=ids_BS, max_logits=True)
        batch = tokens.batch(update * config.text_samples, config.text_samples)
        beside = model(batch.tokens_BS, document_ids_BS=batch.document_ids_BS, max_logits=True)
        text = model.loss(beside.hidden_BSD, batch.targets_BS) + beside.aux_loss
        loss = model.loss(output.hidden_BSD, targets_BS, IGNORED) + output.aux_loss + config.text_weight * text
        rate = config.learning_rate * min(1.0, (update + 1) / config.warmup)
        if update >= config.warmup:
            done = (update + 1 - config.warmup) / (UPDATES - config.warmup)
            rate += (config.final_learning_rate - config.learning_rate) * done
        maxima = torch.maximum(output.max_logits_LH, beside.max_logits_LH)
        norm = stepped(model, optimizer, loss, maxima, rate, config.gradient_clip)
        update_router_bias(model, output.expert_counts_LE + beside.expert_counts_LE, model.config.bias_update_rate)
        plain.append((float(loss.detach()), norm))
    assert_plain(folder, plain, model)


@pytest.mark.parametrize(("updates", "reset"), [(1, False), (2, False), (2, True)])
def test_rl_is_the_plain_update(inputs: Inputs, tmp_path: Path, updates: int, reset: bool) -> None:
    """Iterations of one update each, or of two, the second held against the policy before the first: all its groups in
    one batch, all samples of PTX in another, and in a third all rows of dialogues, which are those of the family that
    is not practised. Large weights of the log-ratio, so that it shows. `reset`: each iteration has a new optimizer,
    which both of its updates take."""
    changes = {"iterations": UPDATES // updates, "updates": updates, "tau": 1.0, "reset_optimizer": reset}
    path = job_of(Reinforcement, inputs, tmp_path, **changes)
    run(Reinforcement, path)
    job = Job.read(path)
    config = RlConfig.model_validate(job.config)
    model = load_model(job.inputs["sft"])
    model.float32_head = True
    optimizer = MuonClip.for_model(model, config.optimizer)
    train = load_splits(job.inputs["dialogues"]).train
    chat, curriculum = load_chat(job.inputs["tokenizer"]), Curriculum(train.problems, config.environments)
    tokens = Loader(job.inputs["tokens"], "train", None, config.seed, config.ptx_sequence_length)
    copies = [example for example in train.examples if example.environment == "copy"]
    rows = (config.dialogue_sequence_length, config.dialogue_rows, config.seed, model.config.pad_token_id)
    packed = Packed(copies, *rows)
    plain = []

    def through(groups: Sequence[Group]) -> tuple[Any, TreeBatch, Tensor]:
        trees = pack_trees([Tree(group.prompt, [response.ids for response in group.responses]) for group in groups])
        output = model(
            trees.tokens_BS,
            positions_BS=trees.positions_BS,
            mask=document_mask(trees.branch_BS, shared_prompt=True),
            max_logits=True,
        )
        return output, trees, tree_log_probs(model, trees, output.hidden_BSD)

    for number in range(config.iterations):
        seed = f"rl/{config.seed}/{number}"
        drawn = curriculum.draw(config.prompts, f"{seed}/prompts")
        all_groups = roll_out(model, chat, drawn, config.responses, 1.0, seed, config.rewards, "float32")
        for group in all_groups:
            curriculum.record(group.problem, int(sum(group.scores)), len(group.scores))
        assert sum(group.informative for group in all_groups) > 1
        shares = [all_groups[first::updates] for first in range(updates)]
        before = [through(groups)[2].detach() for groups in shares]
        if reset:
            optimizer = MuonClip.for_model(model, config.optimizer)
        for update, (groups, old_NT) in enumerate(zip(shares, before, strict=True), number * updates):
            output, trees, log_probs_NT = through(groups)
            rewards_N = torch.tensor([reward for group in groups for reward in group.rewards])
            baselines_N = torch.tensor([group.baseline for group in groups]).repeat_interleave(config.responses)
            learned = k2_objective(log_probs_NT, old_NT, trees.mask_NT, rewards_N - baselines_N, config.tau)
            batch = tokens.batch(update * config.ptx_samples, config.ptx_samples)
            beside = model(batch.tokens_BS, document_ids_BS=batch.document_ids_BS, max_logits=True)
            ptx = model.loss(beside.hidden_BSD, batch.targets_BS) + beside.aux_loss
            tokens_BS, targets_BS, ids_BS, positions_BS = packed.batch(update)
            other = model(tokens_BS, positions_BS=positions_BS, document_ids_BS=ids_BS, max_logits=True)
            told = model.loss(other.hidden_BSD, targets_BS, IGNORED) + other.aux_loss
            loss = learned + config.ptx_weight * ptx + config.dialogue_weight * told
            progress = number / (config.iterations - 1)
            rate = config.learning_rate + (config.final_learning_rate - config.learning_rate) * progress
            maxima = torch.stack([output.max_logits_LH, beside.max_logits_LH, other.max_logits_LH]).amax(0)
            norm = stepped(model, optimizer, loss, maxima, rate, config.gradient_clip)
            plain.append((float(loss.detach()), norm))
    iterations = [plain[first : first + updates] for first in range(0, len(plain), updates)]
    assert_plain(tmp_path, [tuple(map(statistics.fmean, zip(*each, strict=True))) for each in iterations], model)


@pytest.mark.parametrize(("updates", "correction"), [(1, 0.0), (3, 1.5)])
def test_what_is_paused_is_learned_by_the_formula(
    inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, updates: int, correction: float
) -> None:
    """Losses and gradients, in float64 and response by response: only what the present policy drew has a log-ratio, and
    rewards are held against all that have ended."""
    update, accumulate = Reinforcement._update, Trainer.accumulate
    old, groups, temperature, version = Transformer(tiny_config()).double(), list[Group](), 0.0, 0
    seen: Counter[str] = Counter()

    def begins(objective: Reinforcement, learned: Sequence[Group], rate: float, now: float, done: int) -> Any:
        nonlocal old, groups, temperature, version
        old, groups, temperature, version = exactly(objective.trainer.model), list(learned), now, done
        return update(objective, learned, rate, now, done)

    def log_probs(model: Transformer, ids: list[int]) -> Tensor:
        hidden_SD = model(torch.tensor([ids[:-1]])).hidden_BSD[0].double()
        logits_SV = hidden_SD @ model.lm_head.weight.T / temperature
        return logits_SV.log_softmax(-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]

    def held_against(trainer: Trainer, parts: Any) -> Any:
        totals, model, config = accumulate(trainer, parts), exactly(trainer.model), trainer.config
        share = groups[seen["steps"] % updates :: updates]
        seen["steps"] += 1
        loss = sum(parameter.sum() * 0 for parameter in model.parameters())
        for group in share if updates > 1 else [group for group in share if group.informative]:
            rewards = [*group.earlier, *group.rewards]
            for response, reward in zip(group.responses, group.rewards, strict=True):
                present_T = torch.tensor([drew == version for drew in response.versions])
                ids, first = [*response.prompt, *response.ids], len(response.prompt) - 1
                now_T = log_probs(model, ids)[first:][present_T]
                old_T = log_probs(old, ids)[first:][present_T].detach()
                square = (reward - statistics.fmean(rewards) - config.tau * (now_T - old_T).sum()) ** 2
                if correction:
                    drawn_T = torch.tensor(response.log_probs, dtype=torch.float64)[present_T]
                    square = square * (old_T - drawn_T).sum().exp().clamp(max=correction)
                loss = loss + square / sum(len(each.responses) for each in share) / (2 * config.tau)
                seen["resumed"] += len(present_T) > present_T.sum()
                seen["earlier"] += bool(group.earlier)
        loss.backward()
        assert totals.loss == pytest.approx(float(loss.detach()), rel=1e-5, abs=1e-6)
        for (name, mine), exact in zip(trainer.model.named_parameters(), model.parameters(), strict=True):
            if mine.grad is not None:
                close_to = {"rtol": 1e-4, "atol": 2e-6, "msg": lambda text, at=name: f"{at}: {text}"}
                torch.testing.assert_close(mine.grad.double(), exact.grad, **close_to)
        return totals

    monkeypatch.setattr(Reinforcement, "_update", begins)
    monkeypatch.setattr(Trainer, "accumulate", held_against)
    changes = {"updates": updates, "correction": correction, "tau": 0.5, "segment": 1, "temperature": [1.2, 0.8]}
    more = {"ptx_weight": 0.0, "dialogue_rows": 0, "rewards": {"budget": 4, "length_weight": 0.2, "length_from": 0.3}}
    run(Reinforcement, job_of(Reinforcement, inputs, tmp_path, **changes, **more))
    assert min(seen["resumed"], seen["earlier"]) > 10, seen


def exactly(model: Transformer) -> Transformer:
    """A copy in float64, without gradients."""
    made = copy.deepcopy(model).double()
    made.float32_head = False
    made.zero_grad(set_to_none=True)
    return made


def test_what_is_sampled_with_and_saved_is_what_the_forward_sees(inputs: Inputs, tmp_path: Path) -> None:
    """INT4 in RL: the generator's log-probabilities are the trainer's, and the weights it samples with are those that a
    release of the saved, unrounded ones holds."""
    policy = model_artifact(inputs.root / "practised", hesitant(inputs, wide()), "sft")
    given = artifacts(Reinforcement, inputs) | {"sft": policy}
    trainer = run(Reinforcement, write_job(tmp_path, CONFIGS[Reinforcement] | {"int4": True, "iterations": 2}, given))
    told = [line["disagreement"] for line in lines(tmp_path) if line["event"] == "update"]
    assert max(told) < 1e-5
    saved = checkpoint.load_model(tmp_path / "final")
    assert any(line["reward"] for line in lines(tmp_path) if line["event"] == "update")
    sampled, exported = trainer.whole(trainer.model).state_dict(), as_served(saved, int4=True).state_dict()
    for name, tensor in saved.state_dict().items():
        expert = ".experts." in name
        assert torch.equal(sampled[name], exported[name] if expert else tensor), name
        assert torch.equal(sampled[name], tensor) != expert, name


def test_widths_that_int4_does_not_divide_are_refused_in_one_sentence(inputs: Inputs, tmp_path: Path) -> None:
    given = artifacts(Tuning, inputs) | {"base": inputs.base}  # whose experts are 16 wide
    with pytest.raises(JobError, match=r"down_EDF has an input width of 16.*or set int4 to false"):
        run(Tuning, write_job(tmp_path, CONFIGS[Tuning], given))


# ----------------------------------------------------------------------------------------------------- ranks that end


def stopped_after(step: int, kind: type[Objective], job: Path) -> list[Launched]:
    """Two ranks of a job, the first of which stands still after that update."""
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, step)
        processes = launch(kind, job, 2)
    wait_stopped(processes[0])
    return processes


@KINDS
def test_ranks_that_are_killed_or_asked_to_stop_go_on(kind: type[Objective], inputs: Inputs, tmp_path: Path) -> None:
    """kill -9 of one rank ends the other with a sentence, SIGTERM to one rank stops both with a checkpoint, and the
    same command ends with the bytes of an undisturbed run of two ranks."""
    longer = {"max_updates": 24, "evaluate_every": 12} if kind is Tuning else {"iterations": 20}
    whole, cut = (job_of(kind, inputs, tmp_path / name, **longer) for name in ("whole", "cut"))
    assert [process.wait() for process in launch(kind, whole, 2)] == [0, 0]
    killed = stopped_after(3, kind, cut)
    killed[1].send_signal(signal.SIGKILL)
    killed[0].send_signal(signal.SIGCONT)
    assert [process.wait() for process in killed] == [1, -signal.SIGKILL]
    assert "RankError: another rank has ended" in (tmp_path / "cut" / "rank0.log").read_text()
    asked = stopped_after(max(line["step"] for line in lines(tmp_path / "cut")) + 2, kind, cut)
    asked[1].send_signal(signal.SIGTERM)
    asked[0].send_signal(signal.SIGCONT)
    assert [process.wait() for process in asked] == [75, 75]
    assert (tmp_path / "cut" / "preempted.json").exists()
    assert [process.wait() for process in launch(kind, cut, 2)] == [0, 0]
    assert lines(tmp_path / "cut") == lines(tmp_path / "whole")
    one, other = ((tmp_path / name / "final" / "manifest.json").read_text() for name in ("cut", "whole"))
    assert one == other


LOADED = """
import runpy, sys
module = sys.argv.pop(1)
try:
    runpy.run_module(module, run_name="__main__", alter_sys=True)
except SystemExit as end:
    assert end.code == 0, end.code
print("loaded", *(name for name in sys.modules if name.partition(".")[0] in ("model", "training", "tasks", "flows")))
"""


@pytest.mark.parametrize(
    ("objective", "module"),
    [(Tuning, "training.sft"), (Reinforcement, "training.rl.train")],
)
def test_the_recorded_hash_covers_all_code_that_took_part(
    inputs: Inputs, tmp_path: Path, objective: type[Objective], module: str
) -> None:
    """Every module that a run had loaded in the end is one that its code's hash reads."""
    path = job_of(objective, inputs, tmp_path, **({"max_updates": 4} if objective is Tuning else {"iterations": 2}))
    command = [sys.executable, "-c", LOADED, module, "--config", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    loaded = set(done.stdout.splitlines()[-1].split()[1:])
    assert {"training.trainer", "model.transformer"} <= loaded
    assert loaded - closure(module) - {module} == set()

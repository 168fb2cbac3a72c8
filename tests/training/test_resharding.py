"""A checkpoint of any layout fills any other: written by real gloo processes, read by every rank of every layout."""

from __future__ import annotations

import json
import multiprocessing
import shutil
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import save_file

from model.config import ModelConfig
from model.sizes import model_preset
from model.transformer import Transformer
from tasks.artifact import Step
from tests.posttraining import Label
from tests.training.layouts import Part, part
from tests.training.ranks import run_ranks
from tests.training.test_checkpoint import full_disk
from training import checkpoint, checkpoint_writer
from training.checkpoint import CheckpointError
from training.checkpoint_writer import Writer
from training.inputs import load_model
from training.layout import Layout
from training.parallel import World

CONFIG = model_preset("tiny", num_hidden_layers=4)
RANKS = 4
WRITERS = {
    "alone": (Layout(), 1),
    "data-2": (Layout(), 2),
    "expert-2": (Layout(expert=2), 2),
    "data-4": (Layout(), 4),
    "expert-4": (Layout(expert=4), 4),
    "pipeline-4": (Layout(pipeline=4), 4),
    "data-2-expert-2": (Layout(expert=2), 4),
    "pipeline-2-virtual-2-expert-2": (Layout(pipeline=2, virtual=2, expert=2), 4),
}
READERS = {
    **WRITERS,
    "expert-8": (Layout(expert=8), 8),
    "pipeline-3-data-3": (Layout(pipeline=3), 9),
    "pipeline-2-data-2-expert-4": (Layout(pipeline=2, expert=4), 16),
}


def weights(seed: int = 0) -> dict[str, torch.Tensor]:
    """Those of a whole model; no two numbers of it are likely to be the same."""
    drawn = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=drawn) for name, shape in checkpoint.whole(CONFIG).items()}


def save(root: Path, update: int, layout: Layout, world: World, writer: Writer | None = None, **options: bool) -> None:
    mine = part(CONFIG, weights(update), layout, world.rank, world.size)
    state = {"update": update, "layout": layout.model_dump()}
    directory = root / f"update-{update:08d}"
    (writer or Writer(world)).save(directory, mine, state, mine.optimizer_state, mine.cuts, **options)


def harm(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    if how != "gone":
        path.write_bytes(content if how == "bit" else content[:-1])


def rank_work(world: World, root: Path) -> None:
    """One rank: checkpoints of every layout, then full disks and damaged files that one rank alone can see."""
    rank = world.rank
    pair = dist.new_group([0, 1])
    worlds = {1: World(), 2: World(rank, 2, rank, pair), 4: world}
    if rank == 0:  # what a killed attempt left
        leftover = root / "data-4" / ".update-00000001.partial"
        leftover.mkdir(parents=True)
        (leftover / "rank-2.note").write_text('{"files": {"model-9-of-9.safetensors": {}}}')
        (leftover / "model-9-of-9.safetensors").write_bytes(b"half")
    for name, (layout, ranks) in WRITERS.items():
        if rank < ranks:
            save(root / name, 1, layout, worlds[ranks])

    # one rank's disk is full: all hear of it, in the background those that the next step asks
    broken = root / "broken"
    for update, (layout, _) in enumerate(list(WRITERS.values())[3:], 1):
        save(broken, update, layout, world)
    told = r"could not write (its part of )?checkpoint update-00000006: .*(large|space|its log)"
    for full, left in ((2, 20_000), (0, 20_000), (2, 0)):  # with 0 bytes left it cannot say why
        with full_disk(left if rank == full else 1 << 40):
            with pytest.raises(CheckpointError, match=told):
                save(broken, 6, Layout(expert=4), world)
            writer = Writer(world)
            save(broken, 6, Layout(expert=4), world, writer, background=True)
            writer.close()
        world.barrier()
        assert not list(broken.glob(".*"))
    mine = part(CONFIG, weights(), Layout(expert=4), rank, RANKS)
    lacking = min(mine.cuts)
    mine.weights[lacking] = mine.weights[lacking][: 1 if rank == 3 else None]
    with pytest.raises(CheckpointError, match=f"do not hold a whole model .* 1 with missing pieces: {lacking}"):
        Writer(world).save(broken / "update-00000006", mine, {}, cuts=mine.cuts)
    assert len(checkpoint.checkpoints(broken)) == 5
    world.barrier()

    # the newest four are damaged, each in a file that another rank hashes; the fifth is taken by all
    if rank == 0:
        for update, name, how in (
            (5, "model-2-of-4.safetensors", "bit"),
            (4, "optimizer-1-of-4.safetensors", "cut"),
            (3, "model-3-of-4.safetensors", "gone"),
            (2, "index.json", "bit"),
        ):
            harm(broken / f"update-{update:08d}" / name, how)
    world.barrier()
    assert checkpoint.newest(broken, world=world) == broken / "update-00000001"
    harmed = sorted(path.name for path in broken.glob("*.corrupt"))
    assert world.gather(json.dumps(harmed))[0] == json.dumps([f"update-{update:08d}.corrupt" for update in range(2, 6)])
    if rank == 0:
        harm(broken / "update-00000001" / "config.json", "bit")
    world.barrier()
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"no checkpoint in .* is usable: .*config.json does not match"):
            checkpoint.newest(broken, world=world)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of the same weights, one for every layout of `WRITERS`."""
    folder = tmp_path_factory.mktemp("layouts")
    assert run_ranks(RANKS, lambda world: rank_work(world, folder)) == [None] * RANKS
    return folder


def directory(root: Path, name: str) -> Path:
    return root / name / "update-00000001"


@pytest.mark.parametrize("written", WRITERS)
def test_any_layout_is_filled_bit_for_bit(root: Path, written: str) -> None:
    source, whole = directory(root, written), weights(1)
    checkpoint.verify(source)
    assert not list(source.parent.glob(".*"))
    assert not list(source.glob("*.note"))
    layout, ranks = WRITERS[written]
    assert checkpoint.load_state(source)["layout"] == layout.model_dump()
    files = {path.name for path in source.glob("*.safetensors")}
    stems = [f"{{}}-{rank}-of-{ranks}" for rank in range(ranks)] if ranks > 1 else ["{}"]
    assert files == {f"{stem.format(kind)}.safetensors" for stem in stems for kind in ("model", "optimizer")}

    for layout, ranks in READERS.values():
        for rank in range(ranks):
            wanted = part(CONFIG, whole, layout, rank, ranks)
            empty = {name: torch.full_like(tensor, torch.nan) for name, tensor in wanted.weights.items()}
            checkpoint.load_weights(source, Part(CONFIG, empty, wanted.cuts, {}), wanted.cuts)
            assert all(torch.equal(empty[name], tensor) for name, tensor in wanted.weights.items())

    state = checkpoint.load_optimizer_state(source)
    layout, ranks = WRITERS[written]
    momenta: dict[str, torch.Tensor] = {}
    for rank in range(ranks):
        momenta |= part(CONFIG, whole, layout, rank, ranks).optimizer_state
    assert state.keys() == momenta.keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in momenta.items())

    model = checkpoint.load_model(source)
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in whole.items())


def test_a_published_model_of_several_files_is_one_model(root: Path, tmp_path: Path) -> None:
    """As a stage publishes `final/`, and the next one reads it."""
    step = Step("base", Label(name="base"), str(tmp_path))
    copied = shutil.copytree(directory(root, "data-2-expert-2"), tmp_path / "final")
    for path in sorted(copied.iterdir()):
        step.adopt(f"model/{path.name}", path)
    model = load_model(step.publish({}).uri)
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in weights(1).items())
    working = {name: tensor.bfloat16() if tensor.is_floating_point() else tensor for name, tensor in weights(1).items()}
    step = Step("working", Label(name="working"), str(tmp_path))
    step.put("model/model.safetensors", ".safetensors", lambda path: save_file(working, path))
    step.adopt("model/config.json", copied / "config.json")
    model = load_model(step.publish({}).uri)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_weights_are_spread_over_the_ranks_that_hold_them(root: Path) -> None:
    """Four copies of the model: each rank writes a quarter, to the longest tensor."""
    sizes = [path.stat().st_size for path in directory(root, "data-4").glob("model-*")]
    assert len(sizes) == RANKS
    assert max(sizes) - min(sizes) <= max(tensor.nbytes for tensor in weights().values())


def test_a_reader_opens_only_what_holds_its_part(root: Path, tmp_path: Path) -> None:
    """Pipeline rank 1 of 4 fills from two files of a checkpoint of 2 x 2: the ranks that held its layer."""
    source = tmp_path / "update-00000001"
    shutil.copytree(directory(root, "pipeline-2-virtual-2-expert-2"), source)
    wanted = part(CONFIG, weights(1), Layout(pipeline=4), 1, 4)
    assert {name.split(".")[1] for name in wanted.weights} == {"1"}
    for file in ("model-0-of-4", "model-1-of-4", *(f"optimizer-{rank}-of-4" for rank in (0, 1))):
        (source / f"{file}.safetensors").unlink()
    empty = {name: torch.zeros_like(tensor) for name, tensor in wanted.weights.items()}
    checkpoint.load_weights(source, Part(CONFIG, empty, {}, {}))
    assert all(torch.equal(empty[name], tensor) for name, tensor in wanted.weights.items())
    state = checkpoint.load_optimizer_state(source)
    here = [name for name in state if name.startswith("momentum/layers.1.")]
    assert here
    assert all(len(state[name]) for name in here)
    with pytest.raises(CheckpointError, match=r"optimizer-[01]-of-4.safetensors cannot be read"):
        state["momentum/embed_tokens.weight"]
    (source / "model-3-of-4.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model-3-of-4.safetensors cannot be read"):
        checkpoint.load_weights(source, Part(CONFIG, empty, {}, {}))


def test_another_model_is_refused_with_all_that_does_not_fit(root: Path) -> None:
    source = directory(root, "expert-4")
    for changes, told in (
        ({"num_hidden_layers": 5}, r"\d+ missing: layers.4.input_layernorm.weight, "),
        ({"num_hidden_layers": 3}, r"\d+ unknown: layers.3.input_layernorm.weight, "),
        ({"n_routed_experts": 16}, r"of another shape: layers.1.mlp.experts.down_EDF \(8, 64, 32\) for \(16, 64, 32\)"),
    ):
        with pytest.raises(CheckpointError, match=f"update-00000001 holds another model: .*{told}"):
            checkpoint.load_weights(source, Transformer(CONFIG.replace(**changes)))


def read_quarters(sources: list[Path], results: multiprocessing.Queue[tuple[int, int]]) -> None:
    """As expert rank 2 of 4: the bytes of its part of each checkpoint, and by how many the process's resident memory,
    mapped files included, rose at most while it verified and loaded it."""
    torch.set_num_threads(1)

    def resident(field: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith(field))) << 10

    for source in sources:
        config = ModelConfig.model_validate_json((source / checkpoint.CONFIG).read_text())
        shapes = {name: torch.empty(shape, device="meta") for name, shape in checkpoint.whole(config).items()}
        mine = part(config, shapes, Layout(expert=4), 2, 4)
        Path("/proc/self/clear_refs").write_text("5")  # the highest is counted from here
        before = resident("VmRSS")
        checkpoint.verify(source)
        empty = {name: torch.zeros(tensor.shape) for name, tensor in mine.weights.items()}
        checkpoint.load_weights(source, Part(config, empty, mine.cuts, {}), mine.cuts)
        assert all(float(tensor.min()) == 0.5 == float(tensor.max()) for tensor in empty.values())
        results.put((sum(tensor.nbytes for tensor in empty.values()), resident("VmHWM") - before))


def test_a_reader_of_a_quarter_holds_its_part_twice_at_most(tmp_path: Path) -> None:
    """104 MB in one file: a rank with a quarter of the experts holds those and the pages that they are read from. The
    first checkpoint, a small one, is read for the code's own pages."""
    sources = []
    for experts in (4, 64):
        config = CONFIG.replace(
            num_hidden_layers=2, n_routed_experts=experts, hidden_size=256, moe_intermediate_size=512
        )
        whole = {name: torch.full(shape, 0.5) for name, shape in checkpoint.whole(config).items()}
        sources.append(tmp_path / str(experts))
        checkpoint_writer.save(sources[-1], part(config, whole, Layout(), 0, 1), {})
    size = (sources[-1] / "model.safetensors").stat().st_size
    context = multiprocessing.get_context("spawn")  # nothing of what this process holds
    results = context.Queue()
    process = context.Process(target=read_quarters, args=(sources, results), daemon=True)
    process.start()
    _, (mine, rose) = results.get(timeout=240), results.get(timeout=240)
    process.join(120)
    assert process.exitcode == 0
    assert mine < 0.3 * size
    pages = 3 * 2 * (2 << 20)  # both ends of three slices fall into pages of up to 2 MiB
    assert rose <= 2 * mine + pages < 0.7 * size

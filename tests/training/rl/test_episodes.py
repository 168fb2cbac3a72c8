"""Episodes of several turns: ids from end to end, masks and log-probabilities of a plain forward, pauses, seeds."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from model.attention import document_mask
from model.chat import Chat, Reply, flat, user
from model.transformer import Transformer
from tests.posttraining import byte_tokenizer, tiny_config, writes_letters
from training.rl.config import RewardConfig, RlConfig
from training.rl.environments import Environment, EnvironmentUnavailable, Outcome, Problem, Services
from training.rl.environments.table import ENVIRONMENTS, SETS
from training.rl.environments.world import InWorld, problem_of
from training.rl.episodes import INSERTED, Episode, Limits, Stage, loops
from training.rl.rewards import group_rewards
from training.rl.rollout import Group, Open, Player, opened
from training.rl.tree import Tree, pack_trees
from training.rl.update import NUMBERS, means, practised, rows_of
from training.rl.worlds.task import Kind, draw_task

REWARDS = RewardConfig(budget=24, repeats=0)
TEMPERATURE = 0.8


@pytest.fixture(scope="module")
def chat() -> Chat:
    return Chat(byte_tokenizer())


@pytest.fixture(scope="module")
def model(chat: Chat) -> Transformer:
    """A network that writes letters, hardly ever anything else, and ends its turns now and then."""
    made = Transformer(tiny_config(initializer_range=0.2, max_position_embeddings=4096), seed=1).eval()
    with torch.no_grad():
        made.lm_head.weight[chat.stop] = 0
    writes_letters(made, chat, 0.4)
    return made


def attacks() -> list[Problem]:
    """Problems whose user goes on for up to four turns, whatever is said."""
    return [one for one in SETS["safety"](20, "turns") if len(one.answer["turns"]) > 1]


def player(model: Transformer, chat: Chat, **more) -> Player:
    given = {"temperature": TEMPERATURE, "rewards": REWARDS, "dtype": "float32", "services": Services()} | more
    return Player(model, chat, **given)


@pytest.fixture(scope="module")
def groups(model: Transformer, chat: Chat) -> list[Group]:
    found, left = player(model, chat).roll_out(opened(attacks(), 4, "seed"))
    assert not left
    return found


def episodes(groups: Sequence[Group]) -> list[Episode]:
    return [one for group in groups for one in group.responses]


def test_a_dialogue_is_the_prompt_of_its_messages_and_nothing_is_tokenised_again(groups: list[Group], chat: Chat):
    """What the policy drew and what was said between is, id by id, what the chat format makes of the dialogue."""
    assert max(len(one.turns()) for one in episodes(groups)) >= 3
    seen = 0
    for group in groups:
        for one in group.responses:
            replies = [chat.parse(turn) for turn in one.turns()]
            if any(reply.errors for reply in replies):
                continue
            messages = list(group.problem.messages)
            for reply, said in zip(replies[:-1], group.problem.answer["turns"], strict=False):
                messages += [reply.message(), {"role": "user", "content": said}]
            assert [*one.prompt, *one.ids[: len(one.ids) - len(one.turns()[-1])]] == chat.prompt(messages)
            seen += len(replies) > 1
    assert seen > 5


def test_log_probs_are_those_of_a_plain_forward_over_the_whole_ids(groups, model):
    for one in episodes(groups)[::2]:
        ids = torch.tensor([[*one.prompt, *one.ids]])
        with torch.no_grad():
            plain_SV = (model.logits(model(ids).hidden_BSD)[0] / TEMPERATURE).log_softmax(-1)
        plain_T = plain_SV[len(one.prompt) - 1 : -1].gather(1, ids[0, len(one.prompt) :, None])[:, 0]
        drawn_T = torch.tensor(one.versions) == 0
        torch.testing.assert_close(torch.tensor(one.log_probs)[drawn_T], plain_T[drawn_T], atol=1e-4, rtol=1e-4)
        assert not torch.tensor(one.log_probs)[~drawn_T].any()


def test_the_trainer_sees_the_drawn_tokens_and_no_others(groups, model):
    """The loss of a micro-batch: its comparison with the generator covers what was drawn, and agrees."""
    config = RlConfig(dtype="float32")
    rows = rows_of(groups, 300)
    assert len(rows) > len(groups), "a group that is longer than the window takes several rows"
    count = sum(len(group.responses) for group in groups)
    assert sum(len(row.responses) for row in rows) == count
    part = practised(rows, count, TEMPERATURE, config, 0)
    mask = document_mask(part.document_ids_BS, shared_prompt=True)
    hidden_BSD = model(part.tokens_BS, positions_BS=part.positions_BS, mask=mask).hidden_BSD
    loss, measures = part.loss(model, hidden_BSD)
    assert int(measures["compared"]) == sum(one.written for one in episodes(groups))
    assert float(measures["disagreement"]) / int(measures["compared"]) < 1e-4
    advantages = [reward - group.baseline for group in groups for reward in group.rewards]
    assert float(loss.detach()) == pytest.approx(
        sum(a * a for a in advantages) / count / (2 * config.tau), rel=1e-2, abs=1e-6
    )


def test_masks_of_a_tree_leave_out_what_was_inserted():
    batch = pack_trees([Tree([1], [[5, 6, 7], [8]], [[True, False, True], [True]])])
    assert batch.mask_NT.tolist() == [[True, False, True], [True, False, False]]
    assert batch.tokens_BS.tolist() == [[1, 5, 6]]


def paused(model: Transformer, chat: Chat, problems: list[Problem], segment: int, **more):
    """Groups by problem, played in pauses, each state through JSON as a checkpoint has it."""
    work, ended, rounds = opened(problems, 3, "seed"), {}, 0
    while work:
        found, left = player(model, chat, segment=segment, version=rounds, **more).roll_out(work)
        for group in found:
            for one in group.responses:
                ended[one.seed] = one
                assert all(one.drawn(version) <= segment for version in range(rounds + 1))
        records = json.loads(json.dumps([one.record(problems.index(one.problem)) for one in left]))
        work, rounds = [Open.of(record, problems) for record in records], rounds + 1
    return ended, rounds


def test_paused_episodes_are_whole_ones_at_temperature_0(model, chat):
    """Under a policy that does not change, wherever a pause falls: within a turn or between two."""
    problems = attacks()
    whole, _ = player(model, chat, temperature=0.0).roll_out(opened(problems, 3, "seed"))
    parts, rounds = paused(model, chat, problems, 5, temperature=0.0)
    assert rounds > 4
    assert {one.seed: (one.ids, one.score, one.finished, one.reason) for one in episodes(whole)} == {
        seed: (one.ids, one.score, one.finished, one.reason) for seed, one in parts.items()
    }
    assert any(len(set(one.versions) - {INSERTED}) > 2 for one in parts.values())


def test_a_resumed_episode_trains_what_the_present_policy_drew(model, chat):
    """Log-probabilities of every segment are those it was drawn by, and the mask is the last segment."""
    problems = attacks()[:2]
    parts, _ = paused(model, chat, problems, 4)
    for one in parts.values():
        last = max(one.versions)
        part = practised(rows_of([Group(problems[0], [one], [1.0])], 4096), 1, TEMPERATURE, RlConfig(), last)
        mask = document_mask(part.document_ids_BS, shared_prompt=True)
        hidden_BSD = model(part.tokens_BS, positions_BS=part.positions_BS, mask=mask).hidden_BSD
        _, measures = part.loss(model, hidden_BSD)
        assert 0 < int(measures["compared"]) == one.drawn(last) <= 4
        assert float(measures["disagreement"]) / int(measures["compared"]) < 1e-4


def test_the_baseline_knows_responses_that_ended_earlier():
    group = Group(attacks()[0], [Episode("a"), Episode("b")], [1.0, 0.0], earlier=(1.0, 1.0))
    assert group.baseline == 0.75
    assert Group(attacks()[0], [Episode("a")], [1.0], earlier=(0.0,)).informative
    assert not Group(attacks()[0], [Episode("a")], [1.0], earlier=(1.0,)).informative


def test_lengths_are_compared_with_those_of_responses_that_ended_earlier(model, chat):
    """K1.5's length reward over all that have ended, through a checkpoint; a straggler alone has nothing to beat."""
    problems, rewards = attacks()[:3], RewardConfig(budget=24, repeats=0, length_weight=0.2)
    work, ended, version, seen = opened(problems, 12, "lengths of twelve"), {}, 0, 0
    while work:
        found, left = player(model, chat, segment=5, version=version, rewards=rewards).roll_out(work)
        for group in found:
            known = ended.setdefault(group.problem.id, [])
            every = [*known, *group.responses]
            due = group_rewards(
                [one.score for one in every], [one.written for one in every], [one.finished for one in every], rewards
            )
            assert [*group.earlier, *group.rewards] == due
            assert group.baseline == pytest.approx(sum(due) / len(due))
            seen += bool(known) and any(one.finished for one in group.responses)
            known += group.responses
        records = json.loads(json.dumps([one.record(problems.index(one.problem)) for one in left]))
        assert not any(each["turn"] for record in records for each in record["before"]), "no critic reads these"
        work, version = [Open.of(record, problems) for record in records], version + 1
    assert seen > 1
    whole, _ = player(model, chat, rewards=rewards, segment=None).roll_out(opened(problems, 12, "lengths of twelve"))
    assert {problem: len(known) for problem, known in ended.items()} == {one.problem.id: 12 for one in whole}


def test_pass_rates_and_comparisons_are_of_whole_responses(model, chat):
    """Whatever is paused in practice: what is left of them would be gone, and the rest are the short ones."""
    groups = player(model, chat, segment=1).sampled(attacks()[:1], 3, "seed")
    assert [len(group.responses) for group in groups] == [3]


def test_an_episode_depends_on_its_seed_alone(model, chat, groups):
    """Neither on what else is played nor on the order."""
    problems = attacks()
    work = opened(problems, 4, "seed")
    again, _ = player(model, chat).roll_out(list(reversed(work))[:3])
    known = {one.seed: one.ids for one in episodes(groups)}
    assert all(known[one.seed] == one.ids for one in episodes(again))
    other, _ = player(model, chat).roll_out(opened(problems, 1, "other"))
    assert {tuple(one.ids) for one in episodes(other)}.isdisjoint(tuple(ids) for ids in known.values())


def test_budgets_of_turns_and_episodes_cut(model, chat):
    rewards = RewardConfig(budget=24, episode_budget=200, repeats=0, over_budget=-0.25)
    found, _ = player(model, chat, rewards=rewards).roll_out(opened(attacks(), 4, "seed"))
    cut = [
        (one, reward)
        for group in found
        for one, reward in zip(group.responses, group.rewards, strict=True)
        if not one.finished
    ]
    assert cut
    assert all(reward == -0.25 and one.score == 0.0 and one.reason == "over its budget" for one, reward in cut)
    assert all(len(one.ids) <= 200 and max(map(len, one.turns())) <= 24 for one in episodes(found))
    assert any(len(one.turns()) > 1 for one, _ in cut)


def test_a_loop_is_cut_and_scores_nothing(chat):
    """A network that says one token for ever."""
    made = Transformer(tiny_config(max_position_embeddings=4096), seed=1).eval()
    with torch.no_grad():
        made.embed_tokens.weight[:] = made.embed_tokens.weight[0]
        made.lm_head.weight[:] = 0
        made.lm_head.weight[65] = made.embed_tokens.weight[0] * 100
    rewards = RewardConfig(budget=1000, repeats=8)
    found, _ = player(made, chat, temperature=0.0, rewards=rewards).roll_out(opened(attacks()[:1], 1, "seed"))
    (one,) = episodes(found)
    assert len(one.ids) == 64
    assert (one.finished, one.score, one.reason) == (False, 0.0, "it repeats itself")
    assert found[0].rewards == [rewards.over_budget]
    for segment in (5, 16, 64):  # wherever pauses fall
        parts, _ = paused(made, chat, attacks()[:1], segment, temperature=0.0, rewards=rewards)
        assert {(tuple(each.ids), each.reason) for each in parts.values()} == {(tuple(one.ids), one.reason)}


def test_loops_are_told_from_texts_that_repeat_a_little():
    assert loops([1, 2, 3] * 22, 8)
    assert loops([9, 9, 9, *[4] * 64], 8)
    assert not loops([1, 2, 3] * 20, 8)
    assert not loops(list(range(40)) * 2, 8)
    assert not loops([*[4] * 64, 5], 8)


@pytest.mark.parametrize("segment", [None, 40])
def test_a_right_assistant_in_worlds_scores_and_its_ids_are_the_dialogue(chat, segment):
    """Scripted turns in place of the generator's, through tool results and users; a pause falls within turns too."""
    for seed in range(12):
        problem = problem_of(draw_task(seed, "train", Kind()), seed, Kind())
        gold, episode = InWorld(Services()).gold(problem), Episode("seed")
        limits, version = Limits(RewardConfig(budget=4096), 1 << 20, segment), 0
        while not episode.ended:
            stage = Stage(chat, [problem], [episode], 1.0, limits, version, Services(), lambda doing: None)
            while stage.next() is not None:
                request = stage.request(0)
                assert request.prompt == [*episode.prompt, *episode.ids]
                place = len(episode.turns()) - bool(episode.speaking)
                cut = turn_of(chat, gold[place])[episode.speaking :][: request.max_new_tokens]
                stage.hear(0, cut, [0.0] * len(cut))
            stage.close()
            version += 1
        assert (episode.score, episode.finished, episode.reason) == (1.0, True, "")
        assert episode.written == sum(len(turn_of(chat, reply)) for reply in gold)
        assert (version > 1) == (segment is not None)
        world = InWorld(Services())
        seen = world.reset(problem)
        messages = list(seen.messages)
        for reply in gold:
            messages += [reply.message(), *world.step(reply).messages]
        assert [*episode.prompt, *episode.ids] == flat(chat.render(messages, seen.tools))[0]


def turn_of(chat: Chat, reply: Reply) -> list[int]:
    """The ids of a turn; the numbers of its calls stay what they are."""
    pieces = [*chat.encode(reply.content)]
    if reply.calls:
        pieces.append(chat.ids["<|tool_calls_section_begin|>"])
        for call in reply.calls:
            pieces += [chat.ids["<|tool_call_begin|>"], *chat.encode(call.id)]
            pieces += [chat.ids["<|tool_call_argument_begin|>"], *chat.encode(call.written)]
            pieces.append(chat.ids["<|tool_call_end|>"])
        pieces.append(chat.ids["<|tool_calls_section_end|>"])
    return [*pieces, chat.stop]


def test_an_environment_that_waits_does_not_hold_back_the_others(model, chat):
    """Verdicts come from threads, and are those of the same replies judged alone."""
    with Services(support=lambda source, said: [float(len(one) % 2) for one in said]) as services:
        problems = SETS["faithful"](6, "x") + attacks()[:2]
        found, _ = player(model, chat, services=services).roll_out(opened(problems, 3, "seed"))
    assert [group.problem for group in found] == problems
    judged = [one for group in found[:6] for one in group.responses if one.finished]
    assert judged
    assert all(one.score == 1.0 or one.reason for one in judged)


class Meeting(Environment):
    """Each episode's first turn is answered when those of all episodes are there and somebody was seen to wait for
    them, and so are its others."""

    turns, waits = 9, True
    count = 4
    met, awaited = threading.Barrier(count), threading.Event()
    heard = 0

    def answer(self, problem: Problem, reply: Reply) -> Outcome:
        self.met.wait(30)
        assert self.awaited.wait(30), "the stage gave no sign of life while it waited"
        type(self).heard += 1
        return Outcome(False, messages=(user("Go on."),))

    def corrupted(self, problem: Problem) -> list[list[Reply]]:
        return []


def test_resumed_episodes_are_played_again_together_once_they_are_asked(chat, monkeypatch):
    """In the threads of the environments, with a sign of life, and as time for which they are waited for."""
    monkeypatch.setitem(ENVIRONMENTS, "meeting", Meeting)
    problem = Problem("p", "words", "meeting", (user("Hello."),), "x")
    turn, said = [*chat.encode("hi"), chat.stop], chat.following([user("Go on.")])
    ids, versions = [*turn, *said] * 2, [*[0] * len(turn), *[INSERTED] * len(said)] * 2
    resumed = [
        Episode(str(n), chat.prompt(problem.messages), [*ids], [0.0] * len(ids), [*versions])
        for n in range(Meeting.count)
    ]

    def beat(doing: str) -> None:
        if doing == "verdicts of environments":
            Meeting.awaited.set()

    limits = Limits(RewardConfig(), 4096, segment=len(turn))
    with Services() as services:
        stage = Stage(chat, [problem] * Meeting.count, resumed, 1.0, limits, 1, services, beat)
        while (place := stage.next()) is not None:
            assert Meeting.heard == 0, "nothing is played again before it is needed"
            stage.hear(place, turn, [0.0] * len(turn))
        stage.close()
        assert services.idle_seconds > 0
    assert Meeting.heard == 3 * Meeting.count
    assert all(len(one.turns()) == 3 and not one.ended for one in resumed)


def test_a_verdict_that_comes_earlier_in_a_replay_stands(chat):
    """As where a machine is busier than it was: what took too long is a wrong answer."""

    class Hasty(Meeting):
        waits = False

        def answer(self, problem: Problem, reply: Reply) -> Outcome:
            return Outcome(True, 0.0, "it took too long")

    problem = Problem("p", "words", "hasty", (user("Hello."),), "x")
    turn, said = [*chat.encode("hi"), chat.stop], chat.following([user("Go on.")])
    versions = [*[0] * len(turn), *[INSERTED] * len(said)]
    one = Episode("s", chat.prompt(problem.messages), [*turn, *said], [0.0] * len(versions), versions)
    with pytest.MonkeyPatch.context() as patch, Services() as services:
        patch.setitem(ENVIRONMENTS, "hasty", Hasty)
        stage = Stage(chat, [problem], [one], 1.0, Limits(RewardConfig(), 4096), 1, services, lambda doing: None)
        assert stage.next() == 0
        stage.hear(0, turn, [0.0] * len(turn))
        stage.close()
    assert (one.ended, one.score, one.reason) == (True, 0.0, "it took too long")


def compared(
    model: Transformer, groups: Sequence[Group], dtype: str, version: int = 0, temperature: float = TEMPERATURE
):
    """The log-probabilities that the trainer has of what was drawn, and how far they are from the generator's."""
    rewarded = [replace(one, rewards=[float(place % 2) for place in range(len(one.responses))]) for one in groups]
    rows = rows_of(rewarded, 4096)
    part = practised(rows, len(rows), temperature, RlConfig(), version)
    mask = document_mask(part.document_ids_BS, shared_prompt=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
        hidden_BSD = model(
            part.tokens_BS, positions_BS=part.positions_BS, mask=mask, experts_BSLK=part.experts_BSLK
        ).hidden_BSD
        loss, measures = part.loss(model, hidden_BSD)
    model.zero_grad()
    loss.backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    return [loss.detach(), *gradients], float(measures["disagreement"] / measures["compared"])


def test_kl_is_of_the_responses_that_are_learned_from(groups, model):
    """Nats a response, however many others of the iteration teach nothing: they take part in the loss's mean alone."""
    rows, found = rows_of(groups, 4096), []
    responses = sum(len(group.responses) for group in groups)
    for total in (responses, 4 * responses):
        part = practised(rows, total, 0.5, RlConfig(), 0)
        mask = document_mask(part.document_ids_BS, shared_prompt=True)
        hidden_BSD = model(part.tokens_BS, positions_BS=part.positions_BS, mask=mask).hidden_BSD
        loss, measures = part.loss(model, hidden_BSD)
        step = dict.fromkeys(NUMBERS, 0.0) | {name: float(value) for name, value in measures.items()}
        assert step["responses"] == responses
        found.append((loss.item(), means([step, step])["kl"], step["kl"] / responses))
    (loss, kl, each), (less, same, _) = found
    assert kl == each == same > 0
    assert less == pytest.approx(loss / 4)


def without_experts(groups: Sequence[Group]) -> list[Group]:
    return [replace(one, responses=[replace(each, experts=None) for each in one.responses]) for one in groups]


def test_replayed_routes_are_the_trainers_own_in_float32_and_bring_it_nearer_in_bfloat16(chat):
    """Over turns, in trees. Where nothing is rounded the generator chose what the trainer does, bit for bit the same
    loss and gradients; in bfloat16 some choices fall otherwise, and taking the generator's closes most of the gap."""
    shape = {"hidden_size": 64, "num_hidden_layers": 5, "n_routed_experts": 64, "num_experts_per_tok": 8}
    wide = Transformer(tiny_config(**shape, initializer_range=0.15, max_position_embeddings=4096), seed=1).eval()
    wide.float32_head = True
    rewards, problems = RewardConfig(budget=8, repeats=0), attacks()[:1]
    apart = {}
    for dtype in ("float32", "bfloat16"):
        found, _ = player(wide, chat, dtype=dtype, rewards=rewards, routes=True).roll_out(opened(problems, 3, "seed"))
        for one in episodes(found):
            assert one.experts is not None
            assert one.experts.shape == (len(one.prompt) + len(one.ids) - 1, 4, 8)
            assert (one.experts[:, :-1] >= 0).all()  # the last layer passes over most of a prompt
            assert (one.experts[len(one.prompt) - 1, -1] >= 0).all()
        replayed, apart[dtype, True] = compared(wide, found, dtype)
        free, apart[dtype, False] = compared(wide, without_experts(found), dtype)
        assert all(map(torch.equal, replayed, free)) == (dtype == "float32")
    assert apart["float32", True] < 1e-5
    assert apart["bfloat16", True] < 0.5 * apart["bfloat16", False]


def test_a_resumed_episode_has_the_routes_of_the_present_generator(model, chat):
    """Nothing of them is in a checkpoint: all that came before goes through the network again."""
    problem = attacks()[0]
    work, version = opened([problem], 2, "seed"), 0
    while work:
        found, left = player(model, chat, segment=5, version=version, routes=True).roll_out(work)
        for group in found:
            for one in group.responses:
                assert one.experts is not None
                assert len(one.experts) == len(one.prompt) + len(one.ids) - 1
            if version:
                replayed, apart = compared(model, [group], "float32", version)
                assert apart < 1e-4
                assert all(map(torch.equal, replayed, compared(model, without_experts([group]), "float32", version)[0]))
        records = json.loads(json.dumps([one.record(0) for one in left]))
        assert all(episode["experts"] is None for record in records for episode in record["episodes"])
        work, version = [Open.of(record, [problem]) for record in records], version + 1
    assert version > 2


def test_what_was_said_last_to_a_paused_episode_has_no_routes(model, chat):
    """No generator has read it: the trainer chooses the experts of those tokens itself."""
    _, left = player(model, chat, segment=5, routes=True).roll_out(opened(attacks()[:3], 6, "seed"))
    paused = [replace(one, episodes=[each for each in one.episodes if each.versions[-1] == INSERTED]) for one in left]
    groups = [Group(one.problem, one.episodes, [0.0] * len(one.episodes)) for one in paused if one.episodes]
    assert groups
    for group in groups:
        for one in group.responses:
            part = practised(rows_of([Group(group.problem, [one], [0.0])], 4096), 1, TEMPERATURE, RlConfig(), 0)
            assert torch.equal(part.experts_BSLK[0, : len(one.experts)], one.experts)
            assert (part.experts_BSLK[0, len(one.experts) :] == -1).all()
            assert len(one.experts) < part.experts_BSLK.shape[1] == len(one.prompt) + len(one.ids) - 1
    assert compared(model, groups, "float32")[1] < 1e-4


def test_a_prompt_without_room_is_refused_with_its_name(model, chat):
    problem = Problem("long", "words", "exact", ({"role": "user", "content": "x" * 5000},), "x")
    with pytest.raises(EnvironmentUnavailable, match="problem long"):
        player(model, chat).roll_out(opened([problem], 1, "seed"))


def test_what_cannot_go_together_is_refused():
    for settings, word in (
        ({"correction": 0.5}, "at least 1"),
        ({"ptx_mix": {"web": -1.0}}, "ptx_mix: the weight of 'web'"),
        ({"ptx_mix": {}}, "ptx_mix: the mix has no entry"),
        ({"critic": {"judge": "endpoint"}}, r"rl\.judge"),
        ({"sets": {"faithful": 3}}, r"rl\.judge"),
        ({"sets": {"critique": 3}}, r"rl\.critic"),
        ({"sets": {"chess": 3}}, "chess"),
        ({"sets": {"math": 0}}, "greater than 0"),
        ({"sets": {"math": 9}, "environments": {"reverse": 1}}, "sets has 'math', and environments gives it no share"),
        ({"rewards": {"budgets": {"math": 0}}}, "greater than 0"),
        ({"rewards": {"repeats": 1}}, "says itself once"),
    ):
        with pytest.raises(ValueError, match=word):
            RlConfig(**settings)

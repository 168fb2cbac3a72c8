"""What an answer says instead of rewriting: refusals, talk about the task, the prompt's own words, markup of a chat.

All of it is allowed where the source says it too. `clean` takes off what models put around a good answer.
"""

from __future__ import annotations

import json
import re

from tasks.rephrase.alignment.pair import Pair, Verdict, verdict, words
from tasks.rephrase.config import AlignmentConfig

LEAKED = 8
"""Words in a row from the prompt's instructions that no rewriting says by chance."""

REFUSAL = re.compile(
    r"\b(?:I(?:'m|’m| am) (?:sorry|unable|not able|not comfortable)|I apologi[sz]e|unfortunately, I"
    r"|as an? (?:AI\b|(?:\w+ )?language model)|my (?:training data|knowledge cutoff|guidelines|programming)"
    r"|I (?:can(?:not|['’]t)|could not|couldn['’]t|won['’]t|will not) (?:be able to )?(?:help|assist|provide|rewrit"
    r"|rephras|paraphras|translat|fulfil|comply|continu|process|generat|complet|creat|answer|do th)\w*"
    r"|I (?:must|have to) decline|I do(?: not|n['’]t) have (?:access|enough)"
    r"|(?:violates?|against) (?:my|our|openai['’]s|the (?:content|usage)) (?:\w+ )?(?:polic|guideline)\w*"
    r"|please (?:provide|share|paste|give me|send) (?:me )?(?:the|more|some|a|your) (?:\w+ )?"
    r"(?:text|content|passage|part|input|document|context)\b"
    r"|no (?:text|input|content|passage|part) (?:was|is|has been) (?:provided|given)"
    r"|you (?:have not|haven['’]t|did not|didn['’]t) (?:provide|include|give)d?\b)"
    r"|很抱歉|(?:抱歉|对不起)，|我(?:无法|不能|没法|没有办法)(?:协助|帮助|提供|改写|翻译|完成|处理|满足|回答|继续)"
    r"|作为(?:一个|一名|一款)?(?:AI|人工智能|语言模型|大(?:语言)?模型)|无法(?:满足|完成|处理)(?:您|你|该|此)的?(?:请求|要求|任务)"
    r"|请(?:您)?提供(?:更多|原文|需要|文本|要|具体)|(?:违反|不符合)[^。]{0,10}(?:政策|准则|规定)，?我",
    re.I,
)

CHATTER = re.compile(
    r"\b(?:(?:rewritten|rephrased|revised|paraphrased|translated) (?:text|version|passage|part|paragraph|sentence)"
    r"|the (?:original|given|provided|source) (?:text|passage|part)|my own words|rewrite (?:this|the) (?:part|text)"
    r"|I(?:['’]ve| have|['’]ll| will)? (?:now |also )?(?:rewr[io]t|rephras|paraphras|translated|revised)\w*"
    r"|let me know (?:if|whether|what)|(?:I )?hope (?:this|that) (?:helps|meets)|feel free to (?:ask|let)"
    r"|would you like me to|in this (?:rewrite|rewriting|rephrasing)|(?:translator|editor)['’]s note"
    r"|here(?:['’]s| is| are) (?:the|a|my|your) (?:\w+ )?(?:rewrit|rephras|translat|version|revis)\w*)"
    r"|改写后的|(?:以下|下面)(?:是|为)(?:改写|重写|翻译|译文|修改|您|你)|希望(?:这|以上|对[您你])[^。]{0,12}(?:帮助|满意|要求)"
    r"|如(?:果|有|需)[^。]{0,14}(?:请告诉我|随时(?:告诉|联系|提问))|（?译者?注[:：]",
    re.I,
)

MARKUP = re.compile(
    r"</?(?:part|document|plan|sentence|rewrit(?:e|ing|ten)|translation|output|response|answer|think(?:ing)?|assistant|user|system)>"
    r"|<\|[a-z_]{2,20}\|>|\[/?INST\]|<</?SYS>>|</?s>|<(?:start|end)_of_turn>|<(?:bos|eos|pad|unk)>"
    r"|^#{2,4} ?(?:Instruction|Response|Input|Output|Task|Rewrite)s?:?\s*$"
    r"|^(?:Assistant|User|System|Human|AI|助手|用户)[ \t]*[:：]",
    re.I | re.M,
)

PREAMBLE = re.compile(
    r"\A(?:(?:sure|certainly|of course|okay|absolutely)[!,.]?\s*)?(?:here(?:['’]s| is| are)\b[^\n]{0,120}?"
    r"|(?:the )?(?:rewritten|rephrased|revised|translated)[^\n]{0,60}?|(?:rewrite|rewriting|translation)):[ \t]*\n+"
    r"|\A(?:(?:以下|下面)(?:是|为)|改写后的)[^\n]{0,40}?[:：]\s*",
    re.I,
)
THOUGHT = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>\s*", re.S)
FENCED = re.compile(r"\A```(?:text|markdown|md)?[ \t]*\n(.*)\n```\s*\Z", re.S)


def clean(text: str) -> str:
    """An answer without what models put around it: a thought, an announcement, quotes, a fence or a JSON object."""
    text = THOUGHT.sub("", text, count=1).strip()
    text = PREAMBLE.sub("", text, count=1).strip()
    fenced = FENCED.match(text)
    if fenced and "```" not in fenced.group(1):
        text = fenced.group(1).strip()
    if text[:1] == "{" and text[-1:] == "}":
        text = _only_string(text)
    if len(text) > 1 and text[0] in '"“' and text[-1] in '"”' and not re.search('["“”]', text[1:-1]):
        text = text[1:-1].strip()
    return text


def refusal(pair: Pair, config: AlignmentConfig) -> Verdict:
    """No refusal that the source does not have itself."""
    return _absent("refusal", REFUSAL, "refuses", pair)


def chatter(pair: Pair, config: AlignmentConfig) -> Verdict:
    """No talk about the task and to the reader who set it."""
    return _absent("chatter", CHATTER, "talks about the task", pair)


def markup(pair: Pair, config: AlignmentConfig) -> Verdict:
    """No tag of the prompt, role of a chat or special token, and no JSON or fence around the answer."""
    found = _absent("markup", MARKUP, "leaks markup", pair)
    if not found.passed:
        return found
    for sign, kind in (("{", "JSON"), ("[", "JSON"), ("```", "a fence")):
        begins = pair.rewrite.lstrip().startswith(sign)
        if begins and sign not in pair.source and (kind == "a fence" or re.match(r"\s*[\[{]\s*[\"{\[]", pair.rewrite)):
            return Verdict("markup", 0.0, False, f"is {kind} and no text: '{pair.rewrite.strip()[:40]}'")
    return Verdict("markup", 1.0, True)


def leak(pair: Pair, config: AlignmentConfig) -> Verdict:
    """Words of the rewrite that stand in runs of eight or more in the prompt's instructions and not in the source (0 is
    best)."""
    if not pair.prompt:
        return Verdict("leak", 0.0, True)
    said = [word.lower() for word in words(pair.rewrite)]
    known = _runs(pair.prompt) - _runs(pair.source)
    places = [place for place in range(len(said) - LEAKED + 1) if tuple(said[place : place + LEAKED]) in known]
    first = " ".join(said[places[0] : places[0] + LEAKED]) if places else ""
    return verdict("leak", float(len(places)), not places, f"repeats its instructions: '{first}'")


def _runs(text: str) -> set[tuple[str, ...]]:
    found = [word.lower() for word in words(text)]
    return {tuple(found[place : place + LEAKED]) for place in range(len(found) - LEAKED + 1)}


def _absent(check: str, pattern: re.Pattern[str], does: str, pair: Pair) -> Verdict:
    found = pattern.search(pair.rewrite)
    if found and not pattern.search(pair.source):
        return Verdict(check, 0.0, False, f"{does}: '{found.group()[:60]}'")
    return Verdict(check, 1.0, True)


def _only_string(text: str) -> str:
    """The one string of a JSON object of a single field; the text itself where it is anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(value, dict) and len(value) == 1 and isinstance(only := next(iter(value.values())), str):
        return only.strip()
    return text

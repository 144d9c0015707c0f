"""Reduces an answer to a vote: a number, a choice, JSON or a short string that can be compared with the votes of other
answers.

The patterns are generic. An answer without such a value has no vote.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from gateway.backends.cascade import quantities
from gateway.backends.cascade.languages import language
from gateway.domain.text.function_words import Language
from gateway.domain.text.normalisation import composed

_THOUGHT = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)
_FENCE = "```"
_ANSWERS = frozenset(
    re.findall(
        r"\w+",
        "answer final_answer finalanswer result choice label output value respuesta respuesta_final resultado opcion "
        "opción resposta resposta_final opção opcao rótulo rotulo",
    )
)
"""Names of fields in a JSON object that usually contain the answer. Other fields of the object may explain the answer.
"""
_MARK = re.compile(
    r"####\s*"
    r"|\b(?:answer|result|option|choice)(?: is| would be|\s*[:=])(?: option| choice)?[:\s]*"
    r"|\b(?:respuesta|resultado|opci[oó]n)(?: final| correct[ao])?(?: es| ser[ií]a|\s*[:=])(?: la opci[oó]n)?[:\s]*"
    r"|\b(?:resposta|resultado|op[cç][aã]o|alternativa)(?: final| corret[ao])?(?: [eé]| seria|\s*[:=])"
    r"(?: a (?:op[cç][aã]o|alternativa))?[:\s]*",
    re.IGNORECASE,
)
"""Matches phrases that introduce a final answer, in English, Spanish and Portuguese."""
_CHOICE = re.compile(r"\(([A-Za-z])\)(?![A-Za-z])|([A-Z])(?:[).:]\s|[).:]?$|\s+[-–—]\s)")
_OPTION = re.compile(
    r"(?:(?:the|la|el|a|o)\s+)?(?:option|choice|opci[oó]n|op[cç][aã]o|alternativa|letra)\s+\(?([A-Za-z])\)?(?![A-Za-z])",
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"(?:the|la|el|a|o)\s+(?=\(?[A-Z]\b)", re.IGNORECASE)
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{1,2}:\d{2}(?::\d{2})?|\d+\s*[-–]\s*\d+")
_BULLET = re.compile(r"^\s*(?:[-*•>#]+|\d{1,2}[.)])\s+")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[^\W\d_]|[¿¡(\"“])")
_PAUSE = re.compile(r"[.;,(]\s|\s(?:because|since|so|which|porque|pues|ya que|pois|j[aá] que)\s", re.IGNORECASE)
_LATEX_SPACE = re.compile(r"\\[,;:! ]|\\(?:left|right|quad|displaystyle)\b|\{,\}|~")
_LATEX_TEXT = re.compile(r"\\(?:text|mathrm|mathbf|textbf|operatorname|mbox)\s*\{([^{}]*)\}")
_LATEX_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]+)\}\s*\{([^{}]+)\}|\\[dt]?frac\s*(\d)\s*(\d)")
_UNITS = re.compile(r"\s?(?:%|°C?|º|[^\W\d_]+(?:[ /²³^][^\W\d_]+){0,3})?[.!]?")
_SHORT, _WORDS, _FEW = 80, 8, 3
"""A short string has at most `_SHORT` characters and `_WORDS` words. If it has more than `_FEW` words and contains a
number, the number is the vote."""
_LINE = 300
_ENDING = 1000
"""Number of characters at the end of a text that are searched for an introducing phrase."""
_MOST_JSON = 20_000


def vote(
    message: Mapping[str, Any], *, json_wanted: bool = False, question_language: Language | None = None
) -> str | None:
    """The vote of a chat message; None if the message has no vote.

    `json_wanted`: whether a text must be JSON as a whole to be a vote. `question_language`: the language to assume if
    the answer is too short to detect its language.
    """
    if calls := message.get("tool_calls"):
        return _of_calls(calls)
    text = message.get("content")
    return _of_text(text, json_wanted, question_language) if type(text) is str else None


def _of_calls(calls: Any) -> str | None:
    """The vote of tool calls: the names and arguments of all calls, in any order. None if one call cannot be read."""
    signatures: list[str] = []
    for call in calls if type(calls) is list else ():
        function = call.get("function") if type(call) is dict else None
        if type(function) is not dict:
            return None
        try:
            value = orjson.loads(function.get("arguments") or "{}")
        except orjson.JSONDecodeError:
            return None
        signatures.append(_dumped([function.get("name"), _plain(value)]))
    return "calls:" + ",".join(sorted(signatures)) if signatures else None


def _of_text(text: str, json_wanted: bool, question_language: Language | None) -> str | None:
    text = _THOUGHT.split(text)[-1].strip()
    if not text:
        return None
    if (found := _of_json(text, strict=json_wanted)) is not None or json_wanted:
        return found
    question_language = language(text) or question_language
    for marked in _marked(text):
        if marked_vote := _final(marked, question_language):
            return marked_vote
    short = _final(text, question_language) if len(text) <= _SHORT and "\n" not in text else None
    if short is None or (short.startswith("text:") and len(short.split()) > _FEW):
        return _concluding(text, question_language) or short
    return short


def _of_json(text: str, *, strict: bool) -> str | None:
    """The vote of the JSON in `text`; None if there is none. `strict`: the whole text must be JSON. Otherwise, an
    object or list in the text's only fenced block counts too."""
    body = text
    if not strict and len(parts := text.split(_FENCE)) == 3:  # the content of the only fence, without its language name
        body = parts[1].lstrip("abcdefghijklmnopqrstuvwxyzJSON").strip()
    if not strict and body[:1] not in ("{", "["):
        return None
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if type(found) is dict:
        answers = [value for key, value in found.items() if key.lower() in _ANSWERS]
        if len(answers) == 1 and type(answers[0]) in (str, int, float, bool):
            answer = str(answers[0])
            return _final(answer, None) or "text:" + folded(answer)
    dumped = _dumped(_plain(found))
    return "json:" + dumped if len(dumped) <= _MOST_JSON else None


def _plain(value: Any) -> Any:
    """Normalise JSON: ignore case and spaces in strings, and make 1.0 equal to 1."""
    if type(value) is dict:
        return {key: _plain(inner) for key, inner in value.items()}
    if type(value) is list:
        return [_plain(inner) for inner in value]
    if type(value) is str:
        return folded(value)
    return int(value) if type(value) is float and value.is_integer() else value


def _dumped(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def _marked(text: str) -> list[str]:
    r"""The parts of the text that are marked as the answer; may be empty. The last `\boxed` comes first, then the
    text after the last introducing phrase.
    """
    if (at := text.rfind("\\boxed")) >= 0 and (inner := _braced(text, at)) is not None:
        return [inner[:_LINE]]
    ending = text[-_ENDING:]
    marks = list(_MARK.finditer(ending))
    if not marks:
        return []
    rest = ending[marks[-1].end() :].lstrip("*_ \n")
    return [rest.partition("\n")[0][:_LINE]]


def _braced(text: str, at: int) -> str | None:
    """The text inside the first pair of braces after position `at`; None if the braces are not closed."""
    begin = text.find("{", at)
    depth = 0
    for place in range(begin, len(text)) if begin >= 0 else ():
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0:
            return text[begin + 1 : place]
    return None


def _final(text: str, question_language: Language | None) -> str | None:
    """The vote of a short text that is known to be the final answer; None if the text has no vote."""
    text = _ARTICLE.sub("", _bare(text), count=1)
    if found := _CHOICE.match(text) or _OPTION.match(text):
        return f"choice:{next(filter(None, found.groups())).upper()}"
    if _DATE.fullmatch(text.rstrip(".")):
        return "text:" + text.rstrip(".")
    head = _PAUSE.split(text, maxsplit=1)[0].strip()
    head = re.sub(r"^(?:about |approximately |aproximadamente |cerca de )?(?:[a-zA-Z]\w{0,2}\s*=\s*)?", "", head)
    if (found := quantities.NUMBER.match(head)) and _UNITS.fullmatch(head[found.end() :]):
        number = quantities.value(found, question_language)
        return None if number is None else f"number:{number}"
    plain = folded(text)
    return "text:" + plain if plain and len(plain) <= _SHORT and len(plain.split()) <= _WORDS else None


def _bare(text: str) -> str:
    """The text without Markdown. LaTeX commands are replaced by plain characters."""
    text = text.strip().strip("*_`\"'“”$ ")
    text = re.sub(r"\\[()\[\]]", "", text).replace("\\%", "%").replace("\\$", "$")
    text = _LATEX_TEXT.sub(r"\1", _LATEX_SPACE.sub("", text))
    text = _LATEX_FRACTION.sub(lambda found: "/".join(part for part in found.groups() if part), text)
    for latex, plain in (("\\times", "×"), ("\\cdot", "·"), ("^\\circ", "°"), ("**", "")):
        text = text.replace(latex, plain)
    return (text.replace("$", "") if text.count("$") > 1 else text).strip()


def _concluding(text: str, question_language: Language | None) -> str | None:
    """The last number in the last sentence of the text, as a vote; None if that sentence has no number."""
    if text.endswith(_FENCE):
        return None
    line = text.rstrip().rpartition("\n")[2]
    if len(line) > _LINE:
        return None
    line = _BULLET.sub("", _bare(line))
    ending = _SENTENCE.split(line)[-1]
    if _DATE.search(ending):
        return None
    number = quantities.last(ending.rpartition("=")[2] if "=" in ending else ending, question_language)
    return None if number is None else f"number:{number}"


def folded(text: str) -> str:
    """The text with case, width, spaces and surrounding punctuation normalised."""
    text = " ".join(composed(text).casefold().split())
    return text.strip(" .,;:!?¡¿*_`\"'“”")

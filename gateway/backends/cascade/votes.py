"""Reduces an answer to a comparable value: a number, a choice, JSON or a short string.

Generic patterns only. An answer that comes down to nothing in particular has no vote.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

import orjson

from gateway.backends.cascade import quantities
from gateway.backends.cascade.languages import Language, language

_THOUGHT = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)
_FENCE = "```"
_ANSWERS = frozenset(
    re.findall(
        r"\w+",
        "answer final_answer finalanswer result choice label output value respuesta respuesta_final resultado opcion "
        "opción resposta resposta_final opção opcao rótulo rotulo",
    )
)
"""Fields of a JSON object that hold what was asked for; the others may say how it was found."""
_MARK = re.compile(
    r"####\s*"
    r"|\b(?:answer|result|option|choice)(?: is| would be|\s*[:=])(?: option| choice)?[:\s]*"
    r"|\b(?:respuesta|resultado|opci[oó]n)(?: final| correct[ao])?(?: es| ser[ií]a|\s*[:=])(?: la opci[oó]n)?[:\s]*"
    r"|\b(?:resposta|resultado|op[cç][aã]o|alternativa)(?: final| corret[ao])?(?: [eé]| seria|\s*[:=])"
    r"(?: a (?:op[cç][aã]o|alternativa))?[:\s]*",
    re.IGNORECASE,
)
"""What is said before a final answer, in English, Spanish and Portuguese."""
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
"""Characters and words of a short string; one of more than a few words may be a sentence around a number."""
_LINE = 300
_ENDING = 1000
"""Characters in which a mark is looked for: answers stand at the end."""
_MOST_JSON = 20_000


def vote(message: Mapping[str, Any], *, json_wanted: bool = False, spoken: Language | None = None) -> str | None:
    """The vote of a chat message; None when it comes down to nothing.

    `json_wanted`: only whole JSON counts. `spoken`: the language of the question, for an answer too short to tell.
    """
    if calls := message.get("tool_calls"):
        return _of_calls(calls)
    text = message.get("content")
    return _of_text(text, json_wanted, spoken) if type(text) is str else None


def _of_calls(calls: Any) -> str | None:
    """Tools and arguments, in order."""
    said = []
    for call in calls if type(calls) is list else ():
        function = call.get("function") if type(call) is dict else None
        if type(function) is not dict:
            return None
        try:
            given = orjson.loads(function.get("arguments") or "{}")
        except orjson.JSONDecodeError:
            return None
        said.append([function.get("name"), _plain(given)])
    return "calls:" + _dumped(said) if said else None


def _of_text(text: str, json_wanted: bool, spoken: Language | None) -> str | None:
    text = _THOUGHT.split(text)[-1].strip()
    if not text:
        return None
    if (found := _of_json(text, strict=json_wanted)) is not None or json_wanted:
        return found
    spoken = language(text) or spoken
    for marked in _marked(text):
        if said := _final(marked, spoken):
            return said
    short = _final(text, spoken) if len(text) <= _SHORT and "\n" not in text else None
    if short is None or (short.startswith("text:") and len(short.split()) > _FEW):
        return _concluding(text, spoken) or short
    return short


def _of_json(text: str, *, strict: bool) -> str | None:
    """A JSON object or list by itself, or in the only fence."""
    body = text
    if not strict and len(parts := text.split(_FENCE)) == 3:  # what is in the only fence, without its language
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
            said = str(answers[0])
            return _final(said, None) or "text:" + folded(said)
    dumped = _dumped(_plain(found))
    return "json:" + dumped if len(dumped) <= _MOST_JSON else None


def _plain(value: Any) -> Any:
    """JSON with what does not matter made equal: case and spaces of strings, 1.0 and 1."""
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
    """What is marked as the answer: in the last box, else after the last mark."""
    if (at := text.rfind("\\boxed")) >= 0 and (inner := _braced(text, at)) is not None:
        return [inner[:_LINE]]
    ending = text[-_ENDING:]
    marks = list(_MARK.finditer(ending))
    if not marks:
        return []
    rest = ending[marks[-1].end() :].lstrip("*_ \n")
    return [rest.partition("\n")[0][:_LINE]]


def _braced(text: str, at: int) -> str | None:
    """What is inside the first braces from `at` on."""
    begin = text.find("{", at)
    depth = 0
    for place in range(begin, len(text)) if begin >= 0 else ():
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0:
            return text[begin + 1 : place]
    return None


def _final(text: str, spoken: Language | None) -> str | None:
    """What a few words that are said to be the answer come down to."""
    text = _ARTICLE.sub("", _bare(text), count=1)
    if found := _CHOICE.match(text) or _OPTION.match(text):
        return f"choice:{next(filter(None, found.groups())).upper()}"
    if _DATE.fullmatch(text.rstrip(".")):
        return "text:" + text.rstrip(".")
    head = _PAUSE.split(text, maxsplit=1)[0].strip()
    head = re.sub(r"^(?:about |approximately |aproximadamente |cerca de )?(?:[a-zA-Z]\w{0,2}\s*=\s*)?", "", head)
    if (found := quantities.NUMBER.match(head)) and _UNITS.fullmatch(head[found.end() :]):
        worth = quantities.value(found, spoken)
        return None if worth is None else f"number:{worth}"
    said = folded(text)
    return "text:" + said if said and len(said) <= _SHORT and len(said.split()) <= _WORDS else None


def _bare(text: str) -> str:
    """Without Markdown, and LaTeX as plain as it can be."""
    text = text.strip().strip("*_`\"'“”$ ")
    text = re.sub(r"\\[()\[\]]", "", text).replace("\\%", "%").replace("\\$", "$")
    text = _LATEX_TEXT.sub(r"\1", _LATEX_SPACE.sub("", text))
    text = _LATEX_FRACTION.sub(lambda found: "/".join(part for part in found.groups() if part), text)
    for latex, plain in (("\\times", "×"), ("\\cdot", "·"), ("^\\circ", "°"), ("**", "")):
        text = text.replace(latex, plain)
    return (text.replace("$", "") if text.count("$") > 1 else text).strip()


def _concluding(text: str, spoken: Language | None) -> str | None:
    """The last number of what the last line says in the end."""
    if text.endswith(_FENCE):
        return None
    line = text.rstrip().rpartition("\n")[2]
    if len(line) > _LINE:
        return None
    line = _BULLET.sub("", _bare(line))
    ending = _SENTENCE.split(line)[-1]
    if _DATE.search(ending):
        return None
    number = quantities.last(ending.rpartition("=")[2] if "=" in ending else ending, spoken)
    return None if number is None else f"number:{number}"


def folded(text: str) -> str:
    """Case, width, spaces and the marks around a text do not matter."""
    text = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return text.strip(" .,;:!?¡¿*_`\"'“”")

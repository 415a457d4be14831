"""Makes questions from templates: everyday chat and arithmetic."""

from __future__ import annotations

import numpy as np

_CHAT = (
    "Write a short letter to {who} about {what}.",
    "Give me five tips for {doing}, each with one sentence of explanation.",
    "What are the advantages and disadvantages of {doing}?",
    "Explain {idea} to a ten-year-old.",
    "Compare {idea} with {other}. Where do they differ most?",
    "I am planning {what}. What should I think of before I begin?",
    "Tell a story of about ten sentences in which {who} learns something about {idea}.",
    "Make a table with three columns about {idea}, {other} and what people use them for.",
)
_WORDS = {
    "who": ("my landlord", "a retired sailor", "the town library", "an old schoolfriend", "a young baker", "the new manager"),
    "what": ("a broken heating", "a garden behind the house", "a class reunion", "a change of the opening hours", "moving abroad"),
    "doing": ("learning the violin", "baking bread at home", "cycling to work", "keeping bees", "working at night"),
    "idea": ("inflation", "photosynthesis", "a sorting algorithm", "the tides", "insurance", "vaccination", "a budget"),
    "other": ("barter", "an earthquake", "a railway timetable", "composting", "a telescope", "encryption"),
}  # fmt: skip

_SUMS = (
    "{name} buys {a} boxes with {b} {things} each and gives {c} {things} away. How many {things} are left? Reason step by step.",
    "A train goes {a} kilometres an hour for {b} hours and then {c} kilometres more. How far does it go in all? Show each step.",
    "{name} earns {a} dollars an hour, works {b} hours a week and spends {c} dollars each week. How much is saved in four weeks? "
    "Explain how you get there.",
    "A tank holds {d} litres. {a} litres run in each minute and {b} run out. It holds {c} litres now. After how many minutes is it "
    "full? Work it out line by line.",
    "There are {a} rows of {b} seats, and {c} people sit. Then a third of the free seats is taken. How many stay free? "
    "Think it through, then give the result.",
    "{name} reads {b} pages on the first day and {c} more than the day before on each day after it. How many pages are read in "
    "five days? Give all steps.",
)
_NAMES = ("Amara", "Boris", "Chiyo", "Dolores", "Emeka", "Frida")
_THINGS = ("candles", "marbles", "stamps", "buttons", "apricots")


def chat_questions(count: int, seed: int) -> list[str]:
    """Return ``count`` chat questions, from all templates in turn."""
    rng = np.random.default_rng([seed, 1])
    return [
        _CHAT[number % len(_CHAT)].format(**{name: str(rng.choice(words)) for name, words in _WORDS.items()})
        for number in range(count)
    ]


def reasoning_questions(count: int, seed: int) -> list[str]:
    """Return ``count`` arithmetic questions, from all templates in turn."""
    rng = np.random.default_rng([seed, 2])
    questions = []
    for number in range(count):
        a, b, c = int(rng.integers(12, 30)), int(rng.integers(3, 12)), int(rng.integers(4, 40))
        chosen = {"name": str(rng.choice(_NAMES)), "things": str(rng.choice(_THINGS))}
        questions.append(_SUMS[number % len(_SUMS)].format(a=a, b=b, c=c, d=c + 20 * (a - b), **chosen))
    return questions

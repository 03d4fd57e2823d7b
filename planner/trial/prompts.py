"""Forty-eight prompts of our own, six tasks of eight, written for this trial. Short: the trial measures decoding."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt and the task that it stands for."""

    name: str
    task: str
    text: str


_TEXTS: Final[dict[str, tuple[str, ...]]] = {
    "code": (
        "Write a Python function that merges two sorted lists without using sort().",
        "Write a SQL query that lists the three customers with the highest total order value in 2024.",
        "Explain what this line does and rewrite it for clarity: x = [a for b in c for a in b if a]",
        "Write a Rust function that counts how often each word occurs in a string slice.",
        "Write a bash script that deletes log files older than thirty days and prints what it removed.",
        "Write a unit test for a function that parses ISO dates and rejects the thirtieth of February.",
        "Write a TypeScript type for a tree whose leaves are numbers, and a function that sums them.",
        "Turn this loop into a generator: for i in range(10): out.append(i * i)",
    ),
    "reasoning": (
        "A train leaves at 9:40 and covers 210 km at 84 km/h. When does it arrive? Show each step.",
        "Three friends share a bill of 87.60 in the ratio 2:3:1. What does each of them pay?",
        "A tank fills in 6 hours by one pipe and in 4 by another. How long do both take together?",
        "Is 391 a prime number? Reason step by step.",
        "A shirt costs 48 after a discount of 20 percent and then a tax of 5 percent. What was its price before?",
        "How many ways are there to seat five people at a round table if two of them must sit together?",
        "If every blip is a blap and no blap is a blop, can a blip be a blop? Explain.",
        "The average of four numbers is 17. A fifth number brings it to 19. What is the fifth number?",
    ),
    "chat": (
        "I have two days in Lisbon and like old trams and seafood. What should I do?",
        "My sourdough is dense and sour. What could I be doing wrong?",
        "How do I tell my manager that I have too much work without sounding as if I complained?",
        "Explain to a ten-year-old why the sky is blue in the day and red in the evening.",
        "What should I look at before I buy a used bicycle?",
        "Give me a plan for learning to swim as an adult, four weeks, two hours a week.",
        "My cat wakes me at five every morning. What can I do?",
        "What is the difference between a virus and a bacterium, and why does it matter for treatment?",
    ),
    "summary": (
        "Summarise in one sentence: The council met on Monday and agreed to close the north bridge for repairs from "
        "March to June. Buses will use the south bridge. Shop owners asked for signs, which the council will pay for.",
        "Summarise in two points: The new pump uses a third less power than the old one, but it is louder and its "
        "filter must be changed every month. Three farms have tested it since spring, and two of them will keep it.",
        "Give this a title of at most six words: After nine years the lighthouse museum reopened with a room about "
        "the keepers' families, who lived on the rock and grew vegetables in soil brought by boat.",
        "Summarise for a busy reader: Our survey of 412 nurses found that most prefer fixed shifts, that younger "
        "nurses trade shifts more often, and that written handovers halve the questions in the first hour.",
        "State the main claim: Although electric ferries cost more to build, they save fuel from the first day, and "
        "on routes shorter than an hour they repay the difference within seven years, harbour charging included.",
        "Shorten to twenty words: Because the river rose faster than forecast, the festival moved to the school hall, "
        "where fewer people could be seated, so the organisers streamed both concerts free of charge.",
        "What changed? Before: open daily from ten to six. After: open Tuesday to Sunday from nine to five, and on "
        "the first Friday of the month until nine.",
        "List the risks named here: The roof is sound, but the wiring is from 1962, the cellar is damp after heavy "
        "rain, and the lease of the car park ends next year.",
    ),
    "extraction": (
        'Give name, date and amount as JSON: "Invoice 778 to Mara Lindqvist, 14 May 2025, total 1,240.50 euros."',
        'List all e-mail addresses: "Write to ana@example.org or, after six, to desk-2@example.com (not to sales)."',
        'As a table with columns item and count: "two hammers, a dozen nails, one saw and three boxes of screws".',
        'Return the temperatures as numbers: "It was 3 degrees at dawn, 11 at noon and minus 2 at midnight."',
        'As JSON with keys city and country: "She moved from Porto in Portugal to Gent in Belgium."',
        'Which of these are verbs? "run, table, quickly, eat, blue, carry, under"',
        'Give the ISO date of each: "the first of April 2023; 7/9/24 (day first); New Year\'s Eve of 1999".',
        'Classify as praise, complaint or question: "The handle broke on day two. Do you send spare parts?"',
    ),
    "translation": (
        "Translate into German: The meeting has been moved to Thursday because two of us are ill.",
        "Translate into French: Please leave the key under the blue flowerpot when you go.",
        "Translate into Spanish: The recipe needs four eggs, but three will do if they are large.",
        "Translate into Italian: We walked along the coast until the path ended at a small chapel.",
        "Translate into Portuguese: The lift is out of order, so please use the stairs at the back.",
        "Translate into Dutch: If it rains tomorrow, the market will take place in the old station.",
        "Translate into Polish: Her grandfather built this boat, and it still does not leak.",
        "Translate into Swedish: The library closes early on Fridays during the summer.",
    ),
}


def groups(batch: int) -> tuple[tuple[Prompt, ...], ...]:
    """Groups of ``batch`` prompts of one task each, in the task's order; one group of each task in turn.

    So a trial that ends early has seen every task. Where the batch does not divide a task's prompts, its last group
    is filled from the task's beginning, and a batch larger than a task holds prompts more than once.
    """
    each = {
        task: [Prompt(name=f"{task}-{number + 1}", task=task, text=text) for number, text in enumerate(texts)]
        for task, texts in _TEXTS.items()
    }
    size = min(len(prompts) for prompts in each.values())
    return tuple(
        tuple(prompts[(first + place) % size] for place in range(batch))
        for first in range(0, size, batch)
        for prompts in each.values()
    )


def interleaved() -> tuple[Prompt, ...]:
    """All prompts, one of each task in turn."""
    return tuple(prompt for group in groups(1) for prompt in group)

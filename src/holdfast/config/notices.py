"""What a person should know about the settings of a run before it begins, as sentences.

What is wrong with a setting belongs to `load`.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.errors import UsageError
from holdfast.protocol.budgets import Budgets
from holdfast.protocol.fence import Finding
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.settings import Settings

_SHOWN = 5
_NO_COMMAND = "No command runs in a sandbox in this workspace: {why}"
_UNASKED = " Unknown programs run there without a question, and without network."


def notices(settings: Settings, budgets: Budgets, sandbox: Finding | None, unfit: str = "") -> Iterable[str]:
    """Yield what is not as one might think about the money, the window and the sandbox of a run.

    Args:
        settings: The settings of the run.
        budgets: The budgets of the home.
        sandbox: What is known of its sandbox; None: it has none.
        unfit: Why no command may run in the workspace in a sandbox, as the end of a sentence, and what to do, as
            another one; empty if one may.

    Raises:
        UsageError: a cost limit or a budget was set, and what the model costs is not known.
    """
    for facts in _models_of(settings):
        is_limited = settings.limits.is_cost_set or budgets.is_set
        if facts.price == "unknown" and is_limited:
            limit = "A cost limit" if settings.limits.is_cost_set else "A budget"
            way_out = f'Say it in the user file: [catalog."{facts.name}"] with input_usd_per_mtok and'
            raise UsageError(
                f"{limit} is set, but the price of {facts.name} is not known.",
                hint=f"{way_out} output_usd_per_mtok; or leave {limit.lower().replace('a ', 'the ')} unset.",
            )
        yield from unknowns(facts)
    if sandbox is not None and unfit:
        yield _NO_COMMAND.format(why=unfit)
    elif sandbox is not None:
        hosts = settings.policy.allowed_hosts
        network = (
            f"and reach {', '.join(hosts[:_SHOWN])}{' ...' if len(hosts) > _SHOWN else ''}" if hosts else ""
        )
        unasked = _UNASKED if settings.policy.sandboxed == "allow" else ""
        yield (
            f"Commands run in a sandbox ({sandbox.backend}), {network or 'without network'}.{unasked} "
            f"It does not stop {'; '.join(sandbox.leaves_open)}.{sandbox.hint and f' {sandbox.hint}'}"
        )


def unknowns(facts: ModelFacts) -> Iterable[str]:
    """Yield what is not known about a model, and what counts instead."""
    if facts.price == "unknown":
        yield f"Cost unknown: there is no price for {facts.name}; only the limit of tokens counts."
    if not facts.is_window_known:
        yield f"The window of {facts.name} is not known; {facts.context_tokens:,} tokens are assumed."


def _models_of(settings: Settings) -> tuple[ModelFacts, ...]:
    """Return the models that a run with these settings calls."""
    others = (settings.context.compact_model, settings.conduct.reflection_model)
    return (settings.model.facts, *[each for each in others if each is not None])

"""What a verification found, as a table for the terminal."""

from collections.abc import Iterator

from .verification import Verification, differences

RULE = "-" * 70


def report(verification: Verification) -> str:
    """Lay a verification out: every step, the states after the last one, and the verdict."""
    return "\n".join(
        [*step_lines(verification), RULE, *state_lines(verification), RULE, *verdict(verification)]
    )


def step_lines(verification: Verification) -> Iterator[str]:
    """List both runs' losses, the checksum of what was read so far, and what differs; and the kills."""
    straight, resumed = verification.straight, verification.resumed
    yield row("step", "uninterrupted", "resumed", "data so far", "")
    yield RULE
    for ours, theirs in zip(straight.records, resumed.records, strict=True):
        told = differences(ours, theirs)
        mark = f"≠ {', '.join(told)}" if told else "="
        yield row(ours["step"], number(ours["loss"]), number(theirs["loss"]), theirs["data"], mark)
        for kill in resumed.kills:
            if kill.saved == ours["step"]:
                yield f"      killed after step {kill.logged}, resumed after step {kill.saved}"


def row(step: int | str, straight: str, resumed: str, data: str, mark: str) -> str:
    """Align a line of the steps' table."""
    return f"{step:>4}  {straight:>16}  {resumed:>16}  {data:>12}  {mark}".rstrip()


def state_lines(verification: Verification) -> Iterator[str]:
    """List the checksums of both last checkpoints, file by file, and how far apart the weights are."""
    straight, resumed = verification.straight, verification.resumed
    theirs = resumed.fingerprints
    last = f"after step {straight.records[-1]['step']}"
    yield f"{last:<20}{'uninterrupted':<18}resumed"
    for name, ours in straight.fingerprints.items():
        yield f"{name:<20}{ours:<18}{theirs[name]:<18}{'=' if theirs[name] == ours else '≠'}"
    of_losses, of_weights = largest_loss_difference(verification), straight.distance(resumed)
    yield f"largest difference: {of_losses:g} of losses, {of_weights:g} of weights"


def largest_loss_difference(verification: Verification) -> float:
    """Return the largest difference of two losses of a step; one that is not finite differs from none."""
    pairs = zip(verification.straight.records, verification.resumed.records, strict=True)
    return max(abs((ours["loss"] or 0) - (theirs["loss"] or 0)) for ours, theirs in pairs)


def verdict(verification: Verification) -> Iterator[str]:
    """Yield whether resuming is exact, and if not, whose fault that is."""
    if verification.repeated is None:
        yield "exact: the resumed run equals the uninterrupted one, bit for bit"
        return
    yield "not exact: the resumed run differs from the uninterrupted one"
    if verification.straight.equals(verification.repeated):
        yield "  a second uninterrupted run equals the first: resuming is at fault, please report it"
    else:
        yield "  a second uninterrupted run differs from the first, too: the machine is not deterministic"


def number(loss: float | None) -> str:
    """Write a loss with all the digits that float32 has."""
    return "not finite" if loss is None else f"{loss:.9g}"

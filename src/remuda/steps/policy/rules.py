"""Evaluates a policy for one step: whether it may run, with which limits, and which steps run around it. No I/O.

A policy has layers: runner, organization, group, project, from the outermost to the innermost. In every layer the first
rule that matches decides. A step runs if all layers allow it, with the strictest of all limits. If the version of a
step is unknown (or a name such as latest), the step matches no `allow` rule with a version range, and every `deny` rule
with one; likewise for commits and digests. A step that a layer adds to the job, and all that this step runs, is allowed
by that layer and the inner ones; the outer layers still decide."""

import re
from collections.abc import Iterable
from functools import lru_cache

from remuda.steps.job_tree.tree import NOTHING_INSERTED, Inserted
from remuda.steps.language.values import Call, ReferenceKind
from remuda.steps.policy.document import parse_layer, parse_policy
from remuda.steps.policy.values import Decision, Layer, Policy, Rule, Source, Subject
from remuda.steps.policy.versions import is_within, sort_key
from remuda.steps.process.limits import NAMES, NO_LIMITS, Limits, stricter

__all__ = ["decide", "decide_engine", "find_insertions", "parse_layer", "parse_policy"]


def decide(policy: Policy, subject: Subject, *, within: Limits = NO_LIMITS) -> Decision:
    """Decide whether a step may run, and with which limits; `within` are the limits of the step that contains it."""
    source = source_of(subject)
    owner = None if subject.origin == "inserted" else _inserter(policy, [subject.name])
    if owner is not None:
        author = policy.layers[owner].author
        reason = f'the name "{subject.name}" belongs to a step that the policy of {author} inserts; use another'
        return Decision(allowed=False, rule=f"{author}: inserted steps", reason=reason)
    inserter = _inserter(policy, subject.path.split("/")) if subject.origin == "inserted" else None
    limits, rules = within, []
    for index, layer in enumerate(policy.layers):
        rule = next((rule for rule in layer.rules if _fits(rule, subject, source)), None)
        if inserter is not None and index >= inserter:
            rules.append(f"{layer.author}: inserted steps")
        else:
            rules.append(f"{layer.author}: {rule.name if rule else 'default'}")
            if not (rule.allows if rule else layer.allows_by_default):
                return Decision(allowed=False, rule=rules[-1], reason=_refusal(subject, layer, rule))
        limits = stricter(limits, _limits(layer, rule if rule and rule.allows else None))
    reason = f"allowed by {' and by '.join(rules)}" if rules else "there is no policy"
    return Decision(allowed=True, rule="; ".join(rules), reason=reason, limits=limits)


def decide_engine(policy: Policy, address: str) -> Decision:
    """Decide whether a job may use the engine at `address`: all layers must allow it; without layers it may not."""
    for layer in policy.layers:
        if not any(_glob(pattern).fullmatch(address) for pattern in layer.engines):
            reason = _engine_refusal(address, layer.author)
            return Decision(allowed=False, rule=f"{layer.author}: engines", reason=reason)
    if not policy.layers:
        return Decision(allowed=False, rule="engines", reason=_engine_refusal(address, ""))
    return Decision(allowed=True, rule="engines", reason="its engine is allowed")


def find_insertions(policy: Policy, subject: Subject | None = None) -> Inserted:
    """Return the steps that the policy adds before and after a step, or before and after the whole job if `subject` is
    None. Added steps get none themselves. Steps of outer layers enclose those of inner ones."""
    if policy.is_delegated if subject is None else subject.origin == "inserted":
        return NOTHING_INSERTED
    source = source_of(subject) if subject is not None else ""
    before: list[Call] = []
    after: list[Call] = []
    for layer in policy.layers:
        after_in_layer: list[Call] = []
        for insertion in layer.insertions:
            if subject is None and insertion.around:
                continue
            if subject is not None and not any(
                _matches_either(pattern, subject, source) for pattern in insertion.around
            ):
                continue
            (before if insertion.is_before else after_in_layer).append(insertion.call)
        after = [*after_in_layer, *after]
    return Inserted(before=tuple(before), after=tuple(after))


def source_of(subject: Subject) -> str:
    """Return what rules are compared with: a step's reference without scheme, version and folder in the package."""
    text = subject.reference
    match subject.kind:
        case ReferenceKind.BUILTIN:
            return text.partition("://")[2].partition("@")[0] or text
        case ReferenceKind.GIT:
            address = text.partition(" ")[0].partition("://")[2].rpartition("@")[0]
            return address.removesuffix(".git")
        case ReferenceKind.OCI:
            return text.partition(" ")[0].partition("@")[0]
    return text


def _engine_refusal(address: str, author: str) -> str:
    reason = f"the policy of {author} does not allow it" if author else "there is no policy that allows it"
    return (
        f"the container engine {address} is the job's own choice, and {reason}; leave out `engine` and "
        "DOCKER_HOST, or have the address added to `engines` of the policy"
    )


def _refusal(subject: Subject, layer: Layer, rule: Rule | None) -> str:
    if rule is None:
        return f"{subject.reference} is denied: nothing allows it in the policy of {layer.author}"
    because = f": {rule.reason}" if rule.reason else ""
    return f'{subject.reference} is denied by "{rule.name}" in the policy of {layer.author}{because}'


def _limits(layer: Layer, rule: Rule | None) -> Limits:
    """Return a layer's limits for a step: each from the rule if it sets or lifts it, else from the layer."""
    if rule is None:
        return layer.limits
    values = {
        field: getattr(rule.limits, field)
        if getattr(rule.limits, field) is not None or name in rule.lifted
        else getattr(layer.limits, field)
        for field, name in NAMES.items()
    }
    return Limits(**values)


def _fits(rule: Rule, subject: Subject, source: str) -> bool:
    if rule.allows:
        # The real path counts: a link in an allowed folder allows nothing.
        is_meant = any(_matches(pattern, subject.kind, subject.real or source) for pattern in rule.sources)
    else:
        is_meant = any(_matches_either(pattern, subject, source) for pattern in rule.sources)
    if not is_meant:
        return False
    unknown = not rule.allows
    version = subject.version if subject.version and sort_key(subject.version) else None
    if rule.version and not (is_within(version, rule.version) if version else unknown):
        return False
    if rule.digests and not (subject.digest in rule.digests if subject.digest else unknown):
        return False
    return not rule.commits or (subject.commit in rule.commits if subject.commit else unknown)


def _matches_either(pattern: Source, subject: Subject, source: str) -> bool:
    """True if a step's written path (`source`) or its real path matches: a symbolic link cannot avoid a rule."""
    places = (source, subject.real) if subject.real else (source,)
    return any(_matches(pattern, subject.kind, place) for place in places)


def _matches(pattern: Source, kind: ReferenceKind, source: str) -> bool:
    if pattern.kind is not None and pattern.kind is not kind:
        return False
    return not pattern.glob or _glob(pattern.glob).fullmatch(source) is not None


@lru_cache(maxsize=1024)
def _glob(text: str) -> re.Pattern[str]:
    """Compile a glob to a regular expression: `*` matches within one part of a path, `**` across parts."""
    pieces = re.split(r"(\*\*|\*|\?)", text)
    meanings = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(meanings.get(piece) or re.escape(piece) for piece in pieces), re.DOTALL)


def _inserter(policy: Policy, names: Iterable[str]) -> int | None:
    """Return the index of the layer that adds a step with one of these names to the job; None if no layer does."""
    searched = set(names)
    for index, layer in enumerate(policy.layers):
        if any(insertion.call.name in searched for insertion in layer.insertions):
            return index
    return None

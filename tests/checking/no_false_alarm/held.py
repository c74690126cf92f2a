"""Helpers of the tests in this folder."""

import lawful


def assert_held(target, laws, inputs, cases, status="held"):
    """Fails with the verdicts that do not have the expected status."""
    report = lawful.check(target, *laws, inputs=inputs, cases=cases)
    unexpected = [v for v in report if v.status != status]
    assert not unexpected, "\n\n".join(f"{v}\n{v.traceback}" for v in unexpected)


def select_laws(laws, n, count=2):
    """Returns `count` of the laws, which depend on n."""
    return [laws[(n + k * len(laws) // count) % len(laws)] for k in range(min(count, len(laws)))]

"""What the tests of this folder share: a judgement that has to come out well, and the laws of the fast tests."""

import lawful


def assert_held(target, laws, inputs, cases, status="held"):
    """Fails with the whole report of every law that comes out otherwise."""
    report = lawful.check(target, *laws, inputs=inputs, cases=cases)
    wrong = [v for v in report if v.status != status]
    assert not wrong, "\n\n".join(f"{v}\n{v.trace}" for v in wrong)


def in_turn(laws, n, count=2):
    """Some of the laws, others for every n."""
    return [laws[(n + k * len(laws) // count) % len(laws)] for k in range(min(count, len(laws)))]

"""A check in a process of its own: targets by their names, the child that judges, the parent that waits."""

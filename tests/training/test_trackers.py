from lawful.training.shown.tensorboard import TensorBoard
from lawful.training.shown.terminal import Terminal
from lawful.training.trackers import Tracker


def test_whatever_has_the_three_methods_is_a_tracker(tmp_path):
    class Listed:
        def start(self, run, training):
            self.figures = []

        def log(self, step, figures):
            self.figures.append((step, dict(figures)))

        def close(self):
            pass

    for tracker in (Listed(), Terminal(), TensorBoard(tmp_path)):
        assert isinstance(tracker, Tracker)
    assert not isinstance(print, Tracker)

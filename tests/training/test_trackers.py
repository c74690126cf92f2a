from lawful.training.loggers import Logger, TensorBoard, Terminal, Trackers


def test_whatever_has_the_three_methods_is_a_tracker(tmp_path):
    class Listed:
        def start(self, run, training):
            self.figures = []

        def log(self, step, figures):
            self.figures.append((step, dict(figures)))

        def close(self):
            pass

    for tracker in (Listed(), Terminal(), TensorBoard(tmp_path)):
        assert isinstance(tracker, Logger)
    assert not isinstance(print, Logger)


class Told:
    def __init__(self, error=None):
        self.error, self.heard = error, []

    def start(self, run, training):
        self.heard.append("start")

    def log(self, step, figures):
        if self.error:
            raise self.error
        self.heard.append(step)

    def close(self):
        self.heard.append("close")
        raise RuntimeError("closed twice")


def test_one_that_cannot_be_reached_is_told_no_more_and_the_others_are():
    first, lost, last, said = Told(), Told(OSError("no route")), Told(), []
    trackers = Trackers([first, lost, last], said.append)
    trackers.start(None, None)
    for step in (1, 2):
        trackers.log(step, {})
    trackers.close()
    assert first.heard == last.heard == ["start", 1, 2, "close"]
    assert lost.heard == ["start"]
    assert said == ["Told is told no more: OSError: no route"]

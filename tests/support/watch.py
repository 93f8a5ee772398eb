"""An observer made of functions."""

from gadget_svm.simulation.runtime import Observer


class Watch(Observer):
    """Calls ``on_record(record, view)`` and ``should_stop()``, where given."""

    def __init__(self, on_record=None, should_stop=None):
        self.record, self.stop = on_record, should_stop

    def on_record(self, record, view):
        if self.record is not None:
            self.record(record, view)

    def should_stop(self):
        return self.stop is not None and self.stop()


def watched(model, on_record=None, should_stop=None):
    """The model, with such an observer."""
    return model.set_params(observers=[Watch(on_record, should_stop)])

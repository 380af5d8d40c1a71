"""Threads beside other programs: the rule on a machine that is made up, and what the system tells."""

import os

import pytest
import torch

from torchcaps import processors
from torchcaps.processors import Load, is_shared, read_load, wait_gently
from torchcaps.training.fit import train
from torchcaps.training.threads import PATIENCE, ThreadChoice, ThreadRule, may_choose_threads


class Machine:
    """Two processors, or as many as one likes; ``others`` of them are taken by other programs."""

    def __init__(self, others=0.0, processors=2, blind=False):
        self.others, self.processors, self.blind = others, processors, blind
        self.now = self.busy = self.waited = 0.0
        self.threads, self.told = processors, []
        self.rule = ThreadRule(
            processors, self.told.append, self.set_threads, lambda: self.now, self.load, processors=processors
        )

    def set_threads(self, threads):
        self.threads = threads

    def load(self):
        return None if self.blind else Load(self.busy, self.waited)

    def spend(self, seconds, crowded):
        self.now += seconds
        self.waited += crowded * seconds
        self.busy += seconds * min(self.processors, self.threads + self.others)

    def step(self):
        crowded = max(0.0, self.threads + self.others - self.processors)
        # A team is as fast as its slowest, and where it is crowded they wait for each other all the time.
        self.spend(0.1 / self.threads * (10 if crowded > 0.1 else 1), crowded)
        self.rule.step()

    def train(self, seconds, epoch=2.3):
        end = self.now + seconds
        while self.now < end:
            self.rule.begin()
            stop = self.now + epoch
            while self.now < stop:
                self.step()
            self.rule.pause()
            self.now += 0.5  # validation, of which nothing counts
            self.waited += 5


@pytest.mark.parametrize("epoch", [0.3, 2.3, 100])
def test_on_an_idle_machine_nothing_ever_changes(epoch):
    machine = Machine(others=0.0)
    machine.train(300, epoch)
    assert (machine.threads, machine.told, machine.rule.changes) == (2, [], [])


def test_a_program_that_is_busy_for_a_moment_changes_nothing():
    machine = Machine()
    for _ in range(20):
        machine.train(10)
        machine.others = 1
        machine.train(2)
        machine.others = 0
    assert machine.told == []


@pytest.mark.parametrize("epoch", [0.7, 2.3, 100])
def test_beside_another_program_there_are_fewer_threads_soon(epoch):
    machine = Machine(others=1)
    machine.train(25, epoch)
    assert machine.threads == 1
    ((step, threads),) = machine.rule.changes
    assert threads == 1
    assert step < 60
    assert machine.told == [
        "Other programs use this computer's processors: training goes on with 1 of 2 threads, 0.1 s a step instead of "
        "0.5. Give training.threads to decide yourself."
    ]


def test_they_come_back_when_the_other_program_has_ended():
    machine = Machine(others=1)
    machine.train(60)
    machine.others = 0
    machine.train(60)
    assert machine.threads == 2
    assert machine.told[1:] == ["The processors are free again: training goes on with 2 threads."]
    machine.others = 1
    machine.train(120)
    assert machine.threads == 1


def test_nothing_is_changed_all_the_time():
    machine = Machine()
    for turn in range(200):
        machine.others = turn % 2
        machine.train(10)
    assert len(machine.rule.changes) < 16  # in more than half an hour: it waits twice as long after every time


def test_of_many_threads_as_many_stay_as_there_is_room_for():
    machine = Machine(others=1, processors=8)
    machine.train(30)
    assert machine.threads == 7
    machine.others = 4
    free = Machine(others=4, processors=8)
    free.train(30)
    assert free.threads == 4


def test_all_stay_if_fewer_are_no_faster():
    machine = Machine(others=0.08)
    machine.spend = lambda seconds, crowded: Machine.spend(machine, seconds, 0.5)  # they wait, and it costs nothing
    machine.train(40)
    assert (machine.threads, machine.told) == (2, [])
    assert machine.rule.not_before >= PATIENCE


def test_where_the_system_tells_nothing_nothing_changes():
    machine = Machine(others=1, blind=True)
    machine.train(60)
    assert machine.told == []


def test_who_has_said_how_many_is_believed(tiny_recipe, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    torch.set_num_threads(2)
    assert may_choose_threads(tiny_recipe())
    assert not may_choose_threads(tiny_recipe("--training.threads", "2"))
    assert not may_choose_threads(tiny_recipe("--devices", "2"))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert not may_choose_threads(tiny_recipe())
    monkeypatch.delenv("OMP_NUM_THREADS")
    torch.set_num_threads(1)
    assert not may_choose_threads(tiny_recipe())


def test_a_training_records_what_was_changed_and_leaves_the_threads_as_they_were(tiny_recipe, tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    torch.set_num_threads(2)

    def change(self):
        if not self.changes:
            self._set(1)

    monkeypatch.setattr(ThreadRule, "step", change)
    summary = train(tiny_recipe("--epochs", "1"), tmp_path)
    assert summary["threads_changed"] == [[0, 1]]
    assert torch.get_num_threads() == 2


def test_an_error_leaves_them_too():
    torch.set_num_threads(2)
    choice = ThreadChoice()
    choice.rule._set(1)
    choice.on_exception(None, None, ValueError())
    assert torch.get_num_threads() == 2


# ---------------------------------------------------------------- what the system tells


def test_reading_the_load(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1}, raising=False)
    monkeypatch.setattr(os, "sysconf", lambda _: 100)
    (tmp_path / "stat").write_text(
        "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 500 0 0 7 0 0 0 0 0 0\ncpu1 100 20 30 900 40 5 5 40 0 0\nprocs_running 3\n"
    )
    for thread, waited in (("7", 2_000_000_000), ("8", 500_000_000)):
        (tmp_path / "self" / "task" / thread).mkdir(parents=True)
        (tmp_path / "self" / "task" / thread / "schedstat").write_text(f"11 {waited} 4\n")
    (tmp_path / "self" / "task" / "9").mkdir()  # has ended
    assert read_load(tmp_path) == Load(2.0, 2.5)
    assert processors.count_running(tmp_path) == 3
    assert read_load(tmp_path / "nowhere") is None
    assert processors.count_running(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("running", "count", "each", "shared"),
    [
        ([1] * 7, 2, 1, False),
        ([1, 1, 3, 1, 1, 2, 1], 2, 1, False),  # now and then
        ([2, 2, 1, 2, 2, 3, 2], 2, 1, True),
        ([2] * 7, 8, 1, True),
        ([2] * 7, 8, 2, False),  # four cores: there is room beside four threads
        ([7] * 7, 8, 2, True),
        ([None] * 7, 2, 1, False),
    ],
)
def test_whether_others_are_in_the_way(running, count, each, shared):
    values = iter(running)
    assert is_shared(count, each, lambda: next(values), lambda _: None) is shared


def test_threads_sleep_if_others_run_and_nobody_said_otherwise(monkeypatch):
    monkeypatch.setattr(processors, "count_processors", lambda: 2)
    for shared in (False, True):
        monkeypatch.setattr(processors, "is_shared", lambda *_, answer=shared: answer)
        environment = {}
        assert wait_gently(environment) is shared
        assert environment == ({"OMP_WAIT_POLICY": "passive"} if shared else {})
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        assert not wait_gently({name: "1"})
    monkeypatch.setattr(processors, "count_processors", lambda: 1)
    assert not wait_gently({})

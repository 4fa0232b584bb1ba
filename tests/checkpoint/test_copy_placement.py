"""Who has which copy: whatever happens in whatever order, copies are made where they are missing, within
room, of nothing that is gone; what counts is never dropped; and when no more happens, all is settled."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dask_hpc.checkpoint.scheduler.catalogue import Catalogue, Dealer
from dask_hpc.checkpoint.scheduler.placement import CopyPlacement, Order
from dask_hpc.strategies.checkpoint.agents import AgentNode

WORKERS = [f"w{number}" for number in range(6)]  # two on each of three nodes
KEYS = ["x", "y", "z"]
#: x and y are the same
CONTENT = {"x": "1", "y": "1", "z": "2"}
SIZE = {"1": 10, "2": 20}
workers, keys, rooms = st.sampled_from(WORKERS), st.sampled_from(KEYS), st.sampled_from([0, 10, 30, 100])


class Wish:
    def __init__(self, copies):
        self.copies = copies


class Cluster:
    """Workers, their room and what they really keep, and Dask's results."""

    def __init__(self):
        self.room = {}
        self.kept = {}
        self.results = {key: set() for key in KEYS}

    def holders(self, key):
        return sorted(self.results[key])

    def nbytes(self, key):
        return SIZE[CONTENT[key]]

    def is_coming(self, key):
        return False

    def is_able(self, address):
        return address in self.room

    def domain_of(self, address):
        return f"n{int(address[1:]) // 2}"

    def free_of(self, domains):
        return len({self.domain_of(one) for one in self.room}.difference(domains))

    def used(self, worker):
        return sum(SIZE[one] for one in self.kept[worker])


class Copies(RuleBasedStateMachine):
    """A shell whose messages are answered one at a time, in any order, or never."""

    def __init__(self):
        super().__init__()
        self.cluster = Cluster()
        self.placement = CopyPlacement(Catalogue(), self.cluster)
        #: orders that were sent: to whom, and the question
        self.asked = []
        self.drops = []

    def carry_out(self, orders, contents=()):
        room = [
            AgentNode(
                one, budget, self.cluster.used(one) + self.promised(one), domain=self.cluster.domain_of(one)
            )
            for one, budget in self.cluster.room.items()
        ]
        dealer = Dealer(room)
        for order in orders:
            if order is None:
                continue
            had = set(self.placement.catalogue.contents[order.content].where) if order.content else set()
            found = self.placement.deal(order, dealer)
            assert len(found) == len(set(found)) <= order.copies
            assert not had & set(found), "where it is already"
            for agent in found:
                self.placement.sends([order.key] if order.key is not None else [])
                self.asked.append((agent, order.one(), self.placement.question(order, agent)))
        self.placement.made_again(set(contents))

    def promised(self, agent):
        return sum(order.nbytes for to, order, _ in self.asked if to == agent)

    def hear_of(self, drops):
        for agent, contents in self.placement.to_drop(drops).items():
            self.drops.append((agent, contents))

    # the cluster

    @rule(worker=workers, room=rooms)
    def joins(self, worker, room):
        if worker not in self.cluster.room:
            self.cluster.room[worker], self.cluster.kept[worker] = room, set()
            self.placement.catalogue.joins(worker)
            self.hear_of(self.placement.has(worker, []))
            self.placement.look_at()

    @rule(worker=workers)
    def dies(self, worker):
        if self.cluster.room.pop(worker, None) is not None:
            del self.cluster.kept[worker]
            for held in self.cluster.results.values():
                held.discard(worker)
            self.placement.look_at(self.placement.catalogue.lost(worker))
            for key in KEYS:
                self.placement.in_memory(key)

    @rule(worker=workers, key=keys)
    def result_comes(self, worker, key):
        if worker in self.cluster.room:
            self.cluster.results[key].add(worker)
            self.placement.arrived(worker, [key])
            if self.placement.is_back(key):
                self.placement.owes([key])
            self.placement.in_memory(key)

    @rule(key=keys, data=st.data())
    def dask_drops_one(self, key, data):
        """And tells nobody."""
        if self.cluster.results[key]:
            self.cluster.results[key].discard(data.draw(st.sampled_from(self.cluster.holders(key))))

    @rule(worker=workers, data=st.data())
    def an_agent_forgets(self, worker, data):
        if self.cluster.kept.get(worker):
            self.cluster.kept[worker].discard(data.draw(st.sampled_from(sorted(self.cluster.kept[worker]))))

    # users

    @rule(key=keys, copies=st.integers(1, 2))
    def protect(self, key, copies):
        self.placement.wishes[key] = [Wish(copies)]
        self.carry_out(list(self.placement.orders([(key, copies)])))

    @rule(key=keys)
    def unprotect(self, key):
        self.placement.wishes.pop(key, None)
        self.hear_of(self.placement.release(key))

    # the shell

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def answers(self, data):
        self.answer(data.draw(st.integers(0, len(self.asked) - 1)))

    def answer(self, number):
        agent, order, question = self.asked.pop(number)
        key = order.key
        is_there = agent in self.cluster.room and question is not None and self.source_has(question)
        content = CONTENT[key] if key is not None else order.content
        if is_there and content not in self.cluster.kept[agent]:
            is_there = self.cluster.used(agent) + order.nbytes <= self.cluster.room[agent]
        if is_there:
            self.cluster.kept[agent].add(content)
            self.placement.is_copied(
                agent, order, content, order.nbytes, key is None or key in self.placement.wishes
            )
        elif content in self.placement.catalogue.contents:
            self.placement.look_at([content])
        elif key is not None:
            self.placement.owes([key])
        self.placement.sent([key] if key is not None else [])
        if not self.asked:
            self.hear_of(self.placement.unneeded())

    def source_has(self, question):
        source = question["source"]
        if "key" in question:
            return source in self.cluster.results[question["key"]]
        return question["content"] in self.cluster.kept.get(source, ())

    @precondition(lambda self: self.drops)
    @rule(data=st.data())
    def drops_arrive(self, data):
        self.drop(data.draw(st.integers(0, len(self.drops) - 1)))

    def drop(self, number):
        agent, contents = self.drops.pop(number)
        told = self.placement.drops(agent, contents)
        assert not set(told) & set(self.placement.catalogue.on(agent)), "what counts as a copy stays"
        if agent in self.cluster.room:
            self.cluster.kept[agent] -= set(told)
        self.placement.dropped(agent, told)

    @rule()
    def look(self):
        if (steps := self.placement.next_few(2)) is None:
            return
        for key in steps.gone:
            assert not self.cluster.results[key]
            self.hear_of(self.placement.lapse(key))
        for order in steps.orders:
            copies = self.placement.catalogue.contents[order.content]
            assert copies.where or self.cluster.results[order.key], "of what is gone no copy can be made"
        contents = self.placement.makes_again(steps.orders)
        self.carry_out(steps.orders, contents)
        for content in steps.drops:
            copies = self.placement.catalogue.contents[content]
            held = {self.cluster.domain_of(one) for one in self.placement._holders(copies.needed_by)}
            apart = {self.cluster.domain_of(one) for one in copies.where} - held
            assert len(apart) >= copies.wanted, "only what is beside the result goes"
        self.hear_of(steps.drops)

    @rule(worker=workers)
    def agrees(self, worker):
        if worker in self.cluster.room and not self.promised(worker) and not self.drops:
            self.hear_of(self.placement.has(worker, self.cluster.kept[worker]))

    # what holds

    @invariant()
    def nobody_keeps_more_than_fits(self):
        for worker, room in self.cluster.room.items():
            assert self.cluster.used(worker) <= room

    @invariant()
    def only_agents_that_are_there_count(self):
        for copies in self.placement.catalogue.contents.values():
            assert copies.where <= self.cluster.room.keys()

    def teardown(self):
        """Nothing happens any more: soon all has settled, and is as safe as can be."""
        for _ in range(40):
            while self.asked:
                self.answer(0)
            while self.drops:
                self.drop(0)
            for worker in self.cluster.room:
                self.hear_of(self.placement.has(worker, self.cluster.kept[worker]))
            self.placement.look_at()
            while self.placement._doubtful:
                self.look()
            owed = [(key, self.placement.wanted(key)) for key in self.placement.owed]
            self.carry_out(list(self.placement.orders(owed)))
            self.placement.pay()
            if not self.asked and not self.drops:
                break
        else:
            raise AssertionError("it does not settle")
        assert not self.placement._sent and not self.placement._again
        for worker, kept in self.cluster.kept.items():
            assert set(self.placement.catalogue.on(worker)) == kept
        for content, copies in self.placement.catalogue.contents.items():
            self.check_is_safe(content, copies)

    def check_is_safe(self, content, copies):
        """In as many failure domains as is wanted, and one more, as far as there is room in others."""
        domain_of = self.cluster.domain_of
        held = {
            domain_of(one) for key in KEYS if CONTENT[key] == content for one in self.cluster.results[key]
        }
        there = {domain_of(one) for one in copies.where}
        free = {
            domain_of(one)
            for one, room in self.cluster.room.items()
            if room - self.cluster.used(one) >= SIZE[content] and content not in self.cluster.kept[one]
        }
        if copies.where or held:
            assert len(there | held) >= copies.wanted + 1 or not free - there - held


TestCopies = Copies.TestCase
TestCopies.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def placed(copies=1, **results):
    """A content ("1", of x) that is in such results, and on such agents."""
    cluster = Cluster()
    known = CopyPlacement(Catalogue(), cluster)
    for worker in WORKERS:
        cluster.room[worker], cluster.kept[worker] = 100, set()
        known.catalogue.joins(worker)
    cluster.results["x"] = set(results["held"])
    for agent in results["where"]:
        assert known.catalogue.copied("x", "1", 10, agent, copies)
    return known


def test_in_one_more_failure_domain_than_copies_are_wanted():
    for copies, held, where, lacking in (
        (1, ["w0"], ["w2"], 0),
        (1, ["w0"], ["w1"], 1),
        (1, [], ["w2"], 1),
        (2, ["w0"], ["w2"], 1),
        (2, ["w0"], ["w2", "w4"], 0),
        (1, ["w0", "w2"], ["w3"], 1),  # Dask may drop the result on w0
    ):
        known = placed(copies, held=held, where=where)
        assert sum(order.copies for order in known.steps(["1"]).orders) == lacking, (copies, held, where)


def test_surplus_beside_a_result_goes_once_enough_are_elsewhere():
    assert placed(held=["w0"], where=["w1", "w2"]).steps(["1"]).drops == {"1": ["w1"]}
    assert not placed(held=["w0"], where=["w1"]).steps(["1"]).drops
    assert not placed(held=["w0", "w2"], where=["w1", "w3"]).steps(["1"]).drops
    assert not placed(2, held=["w0"], where=["w1", "w2"]).steps(["1"]).drops
    assert not placed(held=["w0"], where=["w2", "w4"]).steps(["1"]).drops


def dealt(known, order, *workers):
    """Agents for an order, if these have room and no others."""
    domain_of = known._view.domain_of
    return known.deal(order, Dealer([AgentNode(one, 100, 0, domain=domain_of(one)) for one in workers]))


def test_beside_the_others_a_copy_is_made_only_if_there_are_too_few():
    """It would die with them."""
    for copies, room, agents in ((1, ["w1"], []), (1, ["w1", "w2"], ["w2"]), (2, ["w1"], ["w1"])):
        known = placed(copies, held=["w0"], where=["w0"])
        (order,) = known.steps(["1"]).orders
        assert dealt(known, order, *room) == agents


def test_who_has_what_is_probably_the_same_takes_it_unless_it_is_beside_the_result():
    known = placed(held=[], where=["w1", "w2"])
    known._view.results["z"] = {"w0"}
    (order,) = known.orders([("z", 1)], like={"z": "1"})
    assert dealt(known, order, "w4") == ["w2"]


def test_what_is_looked_at_while_it_is_copied_is_looked_at_again():
    known = placed(held=["w0"], where=["w1"])
    steps = known.steps(["1"])
    contents = known.makes_again(steps.orders)
    assert not known.steps(["1"]).orders and known.next_few(9) is None
    known.made_again(contents)
    assert len(known.next_few(9).orders) == 1


def test_what_was_looked_at_again_is_not_the_next_time():
    known = placed(held=["w0"], where=["w1"])
    contents = known.makes_again(known.steps(["1"]).orders)
    known.steps(["1"])
    known.made_again(contents)
    known.next_few(9)
    known.made_again(contents)
    assert known.next_few(9) is None


def test_who_was_wrong_about_what_is_probably_the_same_is_not_asked_for_that_again():
    known = placed(held=[], where=["w2"])
    known._view.results["z"] = {"w0"}
    (order,) = known.orders([("z", 1)], like={"z": "1"})
    order.errors = 1
    assert dealt(known, order, "w4") == ["w4"]


def test_who_has_a_result_takes_a_copy_of_it_only_if_there_is_another_result_elsewhere():
    """Nobody else has room: if there is but one result, both would die at once."""
    for held, agents in ((["w0"], []), (["w0", "w1"], []), (["w0", "w2"], ["w0"])):
        known = placed(held=held, where=["w4"])
        assert dealt(known, Order("x", "1", 10, 1, 2, {"w4"}), "w0") == agents


def test_what_has_all_its_copies_is_not_ordered():
    known = placed(2, held=["w0"], where=["w2", "w4"])
    assert list(known.orders([("x", 2), ("y", 1)])) == [None, None]
    (order,) = known.orders([("x", 3)])
    assert (order.copies, order.wanted) == (1, 3)


def test_a_result_that_comes_beside_one_of_several_copies_is_looked_at():
    known = placed(2, held=["w4"], where=["w0", "w2"])
    known.arrived("w5", ["x"])
    assert known.next_few(9) is None
    known.arrived("w1", ["x"])
    assert known.next_few(9) is not None


def test_after_a_restart_nothing_is_in_a_message_any_more():
    known = placed(held=["w0"], where=["w1"])
    assert known.sends(["x"]) == ["x"] and not known.steps(["1"]).orders
    known.restart()
    assert known.steps(["1"]).orders and known.sent(["x"]) == []


def test_what_is_needed_again_by_then_is_not_dropped():
    known = placed(held=["w0"], where=["w2"])
    drops = known.to_drop(known.release("x"))
    assert drops == {"w2": ["1"]} and known.drops("w2", ["1"]) == ["1"]
    doubted = known.asks("w2")
    assert doubted == {"1"}, "it may say that it has it, and hear then that it need not"
    known.answers("w2", doubted)
    known.dropped("w2", ["1"])
    doubted = known.asks("w2")
    assert not doubted and known.drops("w2", ["2"]) == ["2"]
    assert doubted == {"2"}
    assert known.catalogue.copied("x", "1", 10, "w2")
    assert known.drops("w2", ["1"]) == []


def test_what_was_taken_for_nothing_goes_unless_somebody_needs_it():
    known = placed(held=["w0"], where=[])
    order = next(known.orders([("x", 1)]))
    assert not known.is_copied("w2", order, "1", 10, matters=False)
    assert known.unneeded() == {"1": ["w2"]} and known.unneeded() == {}
    assert not known.is_copied("w2", order, "1", 10, matters=False)
    assert known.is_copied("w2", order, "1", 10)
    assert known.unneeded() == {"1": []}


def test_a_death_while_it_is_asked_counts_for_nothing():
    known = placed(held=["w0"], where=[])
    order = next(known.orders([("x", 1)]))
    known.catalogue.lost("w2")
    assert not known.is_copied("w2", order, "1", 10)
    assert known.catalogue.where("x") == ("", [])


def test_one_key_is_copied_for_one_of_those_who_want_it():
    placement = CopyPlacement(Catalogue(), Cluster())
    first, second = set(), set()
    by_key = Order("x", None, 10, 1, 1, set())
    by_content = Order(None, "2", 20, 1, 1, set())
    assert placement.claim([by_key, by_content], first, {}) == [by_key, by_content] and first == {"x"}
    later = {}
    assert placement.claim([by_key, by_content], second, later) == [by_content]
    assert later == {"x": 1} and not second


def two_copies(wanted=1):
    """Of x, on the first worker and the third."""
    placement = CopyPlacement(Catalogue(), Cluster())
    for agent in ("w0", "w2"):
        placement.catalogue.joins(agent)
        placement.catalogue.copied("x", "1", 10, agent, wanted)
    return placement


def test_others_have_as_many_copies_when_one_leaves():
    (order,) = two_copies(wanted=2).leaving(["w0"])
    assert (order.content, order.copies, order.wanted, order.not_to) == ("1", 1, 2, {"w0", "w2"})
    assert two_copies(wanted=1).leaving(["w0"]) == []


def test_a_copy_comes_from_the_nearest_that_has_one():
    placement = two_copies()
    order = Order(None, "1", 10, 1, 1, set())
    assert [placement.question(order, agent)["source"] for agent in ("w1", "w3")] == ["w0", "w2"]
    placement._view.results["x"].add("w5")
    assert placement.question(order, "w1") == {"key": "x", "source": "w5", "have": ["1"]}
    assert two_copies().question(Order(None, "2", 20, 1, 1, set()), "w1") is None


def test_a_copy_beside_its_result_does_not_let_another_go():
    """The result is on w0, of node n0; w1 is there, too."""
    cluster, catalogue = Cluster(), Catalogue()
    placement = CopyPlacement(catalogue, cluster)
    cluster.results["x"] = {"w0"}
    for agent in WORKERS:
        catalogue.joins(agent)
    assert placement.can_do_without(["w2"]), "it has nothing"
    for agent in ("w2", "w1"):
        catalogue.copied("x", "1", 10, agent)
    assert not placement.can_do_without(["w2"]) and placement.can_do_without(["w1"])
    catalogue.add("1", "w4")
    assert placement.can_do_without(["w2"]) and not placement.can_do_without(["w2", "w4"])
    assert placement.forget(["w2", "w3"]) == {"1": ["w2"]} and not catalogue.on("w2")

"""Messages between the processes of a virtual cluster: late by seed, in order on each connection.

Built on Dask's ``inproc`` comms. A message is copied as far as it consists of containers, since sender and
receiver share no memory elsewhere; what is in them is shared.
"""

import contextlib
import itertools
from collections import defaultdict, deque
from contextvars import Context
from weakref import WeakValueDictionary

from distributed.comm import inproc
from distributed.comm.core import CommClosedError
from virtual_clock import PROCESS

_HOST = "10.0.0.1"


class Network:
    """Who is where, and how long messages take. One for each run."""

    def __init__(self, loop, rng, latency=0.0005):
        self.loop = loop
        self.random = rng
        #: seconds that a message takes on average
        self.latency = latency
        #: by process: seconds that its messages, and those for it, are late at most
        self.late = {}
        #: by address: the process that has it
        self.owner = {}
        self.messages = 0
        self._comms = defaultdict(list)
        self._numbers = itertools.count(1)
        self._outside = Context()

    def new_address(self):
        """For a process that listens or connects."""
        number = next(self._numbers)
        address = f"{_HOST}/{number}/1"
        self.owner[address] = PROCESS.get()
        return address

    def joins(self, comm):
        """One more end of a connection. Answers its number."""
        comm.process = PROCESS.get()
        self._comms[comm.process].append(comm)
        return next(self._numbers)

    def send(self, comm, message):
        """It arrives later, and after all that was sent before."""
        self.messages += 1
        seconds = self.random.expovariate(1.0 / self.latency)
        if self.late:
            peer = self.owner.get(comm.peer_address.removeprefix("inproc://"))
            most = max(self.late.get(comm.process, 0.0), self.late.get(peer, 0.0))
            seconds += most * self.random.random()
        comm.arrives = max(self.loop.time() + seconds, comm.arrives)
        comm.under_way.append(message)
        # What was sent arrives, whatever becomes of the sender.
        self.loop.call_at(comm.arrives, comm.deliver, context=self._outside)

    def kill(self, process):
        """Its connections break, and nobody reaches it any more."""
        for address, owner in self.owner.items():
            if owner == process:
                inproc.global_manager.remove_listener(address)
        for comm in self._comms.pop(process, ()):
            comm.abort()


class VirtualComm(inproc.InProc):
    """One end of a connection."""

    network = None

    def __init__(self, *args, **kwargs):
        self.arrives = 0.0
        self.under_way = deque()
        self._number = self.network.joins(self)  # first: it is put into a set
        super().__init__(*args, **kwargs)
        self._wire = self._write_q

    def __hash__(self):
        return self._number

    def _get_finalizer(self):
        return lambda: None

    async def write(self, msg, serializers=None, on_error=None):
        if self.closed():
            raise CommClosedError()
        self.network.send(self, _copied(msg))
        return 1

    def abort(self):
        if not self.closed():
            self.network.send(self, inproc._EOF)
            self._read_q.put_nowait(inproc._EOF)
            self._write_q = self._read_q = None
            self._closed = True
            self._finalizer.detach()

    def deliver(self):
        self._wire.put_nowait(self.under_way.popleft())


def _copied(message):
    kind = type(message)
    if kind is dict:
        return {key: _copied(value) for key, value in message.items()}
    if kind is list or kind is tuple or kind is set:
        return kind(map(_copied, message))
    return message


@contextlib.contextmanager
def virtual_network(network):
    """Dask's ``inproc`` comms are those of this network."""
    manager = inproc.global_manager
    manager._ip = _HOST
    VirtualComm.network = network
    before, inproc.InProc = inproc.InProc, VirtualComm
    listeners, manager.listeners = manager.listeners, WeakValueDictionary()
    manager.new_address, manager.validate_address = network.new_address, lambda address: None
    try:
        yield network
    finally:
        inproc.InProc, manager.listeners = before, listeners
        VirtualComm.network = manager._ip = None
        del manager.new_address, manager.validate_address

"""Workers of rigs that measure a scheduler: states without processes, and wires that lead nowhere."""

from distributed import Status
from distributed.comm.inproc import global_manager
from distributed.scheduler import WorkerState


class DeadWire:
    """Swallows what is sent."""

    def send(self, *messages):
        pass

    def closed(self):
        return True

    def abort(self):
        pass

    async def close(self, *args, **kwargs):
        pass


def add_workers(scheduler, count, wire=DeadWire, memory_limit=10**9):
    """So many of one thread each. Answers their wires by address."""
    wires = {}
    for i in range(count):
        address = f"inproc://{global_manager.new_address()}"  # where nobody listens
        ws = WorkerState(
            address=address, status=Status.running, pid=1, name=i, nthreads=1, memory_limit=memory_limit,
            local_directory="", nanny="", server_id=str(i), scheduler=scheduler,
        )  # fmt: skip
        ws.metrics |= {"memory": 0, "spilled_bytes": {"memory": 0, "disk": 0}}
        scheduler.workers[address] = ws
        scheduler.aliases[i] = address
        scheduler.running.add(ws)
        scheduler.total_nthreads += 1
        scheduler.stream_comms[address] = wires[address] = wire()
        scheduler.check_idle_saturated(ws)
    return wires


async def nobody(*args, **kwargs):
    """In place of a broadcast: no worker answers."""
    return {}

"""A made-up powercap and hwmon tree: a stand-in for counters that test machines do not have."""

import shutil

SPAN = 262_143.328850  # joules; what Intel's 32-bit counters of 61 microjoules come to


class MadeUpTree:
    """``root`` is what meters get. Files are written as Linux would show them."""

    def __init__(self, root):
        self.root = str(root)
        self.powercap = root / "sys/class/powercap"
        self.hwmon = root / "sys/class/hwmon"

    def zone(self, folder, label, joules=0.0, span=SPAN, limits=()):
        """A zone, such as ``intel-rapl:0``; limits are pairs of watts: in force, and at most."""
        path = self.powercap / folder
        path.mkdir(parents=True)
        (self.powercap / "intel-rapl").mkdir(exist_ok=True)  # the control type, no zone
        (path / "name").write_text(f"{label}\n")
        if span is not None:
            (path / "max_energy_range_uj").write_text(f"{round(span * 1e6)}\n")
        for number, (limit, most) in enumerate(limits):
            (path / f"constraint_{number}_name").write_text("long_term\n")
            (path / f"constraint_{number}_power_limit_uw").write_text(f"{round(limit * 1e6)}\n")
            (path / f"constraint_{number}_max_power_uw").write_text(f"{round(most * 1e6)}\n")
        self.count(folder, joules)
        return path

    def count(self, folder, joules, span=SPAN):
        """The counter of a zone stands at so many joules, wrapped."""
        draft = self.powercap / folder / "draft"
        draft.write_text(f"{round(joules * 1e6) % round(span * 1e6)}\n")
        draft.replace(draft.with_name("energy_uj"))  # at once, as the kernel would

    def remove(self, folder):
        shutil.rmtree(self.powercap / folder)

    def sensor(self, folder, driver, **files):
        path = self.hwmon / folder
        path.mkdir(parents=True)
        (path / "name").write_text(f"{driver}\n")
        for name, text in files.items():
            (path / name).write_text(f"{text}\n")
        return path


def denying(*parts):
    """A reader of files to which the kernel says no where a path has one of these parts; a test that runs as
    root cannot be refused otherwise."""

    def read(path):
        if any(part in path for part in parts):
            raise PermissionError(13, "Permission denied", path)
        with open(path, encoding="utf-8") as file:
            return file.read()

    return read

"""The process that makes a rig's namespaces, holds them, and removes them when its owner closes the rig or ends.

Run as a script by the rig; its standard input has the specification, its standard output says "ready" or what went
wrong. A process of its own, because its owner may be killed: then the kernel tells this one, through the end of its
standard input and through a pidfd.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import traceback

import namespaces

Spec = dict  # of the JSON object that rig.py writes


def main() -> int:
    """Make the rig, wait for its end, remove it."""
    spec = json.loads(sys.stdin.readline())
    owner = os.pidfd_open(spec["owner"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the owner
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    holders: list[int] = []
    try:
        try:
            make(spec, holders)
        except Exception as error:
            known = isinstance(error, OSError | RuntimeError)
            print(f"error: {error if known else traceback.format_exc()}", flush=True)
            return 1
        print("ready", flush=True)
        select.select([sys.stdin, owner], [], [])
        return 0
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for pid in holders:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        namespaces.remove(spec["rig"])


def make(spec: Spec, holders: list[int]) -> None:
    """Make the namespaces: the switch, then all hosts at once, then the switch's ports."""
    state = namespaces.STATE / spec["rig"]
    switch = spec["switch"]
    (pid,) = hold([switch], holders)
    for host in spec["hosts"]:
        host["links"] = host["links"].replace("SWITCH", str(pid))
    pids = [pid, *hold(spec["hosts"], holders)]
    enter = ["nsenter", f"--target={pid}", "--net", "--"]
    run([*enter, "ip", "-batch", "-"], switch["ports"])
    run([*enter, "tc", "-batch", "-"], switch["shape_ports"])
    entries = list(zip([switch, *spec["hosts"]], pids, strict=True))
    run(["ip", "-batch", "-"], "".join(f"netns attach {entry['namespace']} {pid}\n" for entry, pid in entries))
    for entry, pid in entries:
        (state / entry["name"]).write_text(f"{pid}\n")


def hold(entries: list[Spec], holders: list[int]) -> list[int]:
    """Fork a process a namespace, which sets it up and stays; return their ids once all are set up.

    Raises
    ------
    RuntimeError
        With what went wrong in one of them.
    """
    begun = []
    for entry in entries:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            be_a_host(entry, writer)
        os.close(writer)
        holders.append(pid)
        begun.append((pid, reader, entry["name"]))
    for _, reader, name in begun:
        with open(reader, encoding="utf-8") as said:
            text = said.read()
        if text != "made":
            raise RuntimeError(f"{name}: {text or 'ended early'}")
    return [pid for pid, _, _ in begun]


def be_a_host(entry: Spec, writer: int) -> None:
    """Set up the namespaces of one host (or the switch), say so, and stay until killed."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        namespaces.die_with_parent()
        namespaces.unshare()
        socket.sethostname(entry["name"])
        mounts(entry)
        for name, value in entry["sysctls"].items():
            set_sysctl(name, value)
        run(["ip", "-batch", "-"], entry["links"])
        run(["tc", "-batch", "-"], entry["shape"])
        run(["iptables-restore"], entry["loss"])
        run(["ip6tables-restore"], entry["loss"])
        os.write(writer, b"made")
    except BaseException as error:
        os.write(writer, (str(error) or traceback.format_exc()).encode())
        os._exit(1)
    os.close(writer)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    while True:
        signal.pause()


def set_sysctl(name: str, value: str) -> None:
    """Set a setting of the kernel for this network namespace, if there is one of that name and it differs.

    Raises
    ------
    RuntimeError
        If the kernel refused.
    """
    path = pathlib.Path("/proc/sys", name)
    with contextlib.suppress(FileNotFoundError):  # of a module that is not loaded, or a kernel without IPv6
        if path.read_text().split() == value.split():
            return
        try:
            path.write_text(value)
        except OSError as error:
            raise RuntimeError(f"cannot set {name} to {value!r}: {error}") from None


def mounts(entry: Spec) -> None:
    """Give the host its own /sys, /dev/shm and names; /tmp and the rest are those of the machine."""
    namespaces.mount("none", "/", None, namespaces.MS_REC | namespaces.MS_SLAVE)
    # What lies there would keep the namespaces of other rigs alive. Emptied, since `ip` complains about the bare files.
    namespaces.unmount(str(namespaces.NAMED))
    namespaces.mount("tmpfs", str(namespaces.NAMED), "tmpfs", 0, "mode=0755")
    namespaces.mount("sysfs", "/sys", "sysfs")
    namespaces.mount("tmpfs", "/dev/shm", "tmpfs", 0, "mode=1777")
    for path in sorted((namespaces.CONFIGURATION / entry["namespace"]).glob("*")):
        target = pathlib.Path("/etc", path.name)
        if target.exists() or path.name == "hosts":  # small systems lack the others, and do without them
            namespaces.mount(str(path), str(target), None, namespaces.MS_BIND)


def run(command: list[str], text: str) -> None:
    """Run a program on this input, if there is any.

    Raises
    ------
    RuntimeError
        With what it printed, if it failed.
    """
    if not text:
        return
    result = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed: {result.stdout.strip()}\n{text}")


if __name__ == "__main__":
    sys.exit(main())

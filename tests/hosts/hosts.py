"""Debian hosts for tests: booted with systemd from overlays of this machine's root, in namespaces.

Needs root. `inside()` runs the calling script anew in namespaces of network, mounts and processes, so that all
of it is gone when the script ends, however it ends. There a `Lab` has a bridge with the addresses of
documentation (RFC 5737); each `Host` on it has its own files, processes, network and systemd, and is reached
by ssh with a key that lives as long as the lab. Nothing of it reaches the world outside.

What hosts need beside this machine's own packages is installed into a layer below them, once a run, while
there is still a network.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# What a bare Debian host brings: the command or unit that shows that it is there.
PACKAGES = {
    "openssh-server": "usr/sbin/sshd",
    "systemd-sysv": "usr/sbin/init",
    "systemd-timesyncd": "usr/lib/systemd/systemd-timesyncd",
    "dbus": "usr/bin/dbus-daemon",
    "nftables": "usr/sbin/nft",
    "logrotate": "usr/sbin/logrotate",
    "python3-apt": "usr/share/doc/python3-apt/copyright",
}
GATEWAY = "192.0.2.1"
BOOT_S = 60
FOLDER = "CACHEBOY_LAB"


class Failed(Exception):
    """What a test found."""


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def hold(condition, text):
    """Fails with the text unless the condition holds."""
    if not condition:
        raise Failed(text)


def run(*command, **options):
    """Runs a command to its end; fails with what it said unless it succeeds."""
    options = {"stdin": subprocess.DEVNULL, "text": True, "timeout": 600} | options
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **options)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def until(what, holds, limit_s=30):
    """Waits for a condition, and returns what it returned."""
    end = time.monotonic() + limit_s
    while True:
        came = holds()
        if came:
            return came
        hold(time.monotonic() < end, f"{what}: not within {limit_s} s")
        time.sleep(0.1)


def inside(script):
    """Returns the lab's folder, within namespaces of its own."""
    if FOLDER in os.environ:
        return pathlib.Path(os.environ[FOLDER])
    if os.geteuid() != 0:
        sys.exit(f"{script}: only root may make namespaces and mounts: run it as root")
    for command, package in {"systemd-nspawn": "systemd-container", "unshare": "util-linux", "ip": "iproute2"}.items():
        if not shutil.which(command):
            sys.exit(f"{script}: there is no {command}: install the Debian package {package}")
    # Told to end, it ends the hosts and leaves nothing behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(f"{script}: ended"))
    with tempfile.TemporaryDirectory(prefix="cacheboy-lab-", dir="/var/tmp") as folder:
        missing = [package for package, path in PACKAGES.items() if not pathlib.Path("/", path).exists()]
        if missing:
            layer(pathlib.Path(folder), missing)
        namespaces = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        command = [*namespaces, sys.executable, script, *sys.argv[1:]]
        try:
            code = subprocess.run(command, env=os.environ | {FOLDER: folder}, check=False).returncode
        finally:
            forget_cgroups(pathlib.Path(folder).name)
    sys.exit(code)


def layer(folder, packages):
    """Installs packages into a layer of files above this machine's, by its own package manager."""
    for part in ["layer", "layer-work", "layer-root"]:
        (folder / part).mkdir()
    say(f"packages that hosts need beside this machine's: {' '.join(packages)}")
    script = f"""set -e
        cd {folder}
        mount -t overlay overlay -o lowerdir=/,upperdir=layer,workdir=layer-work layer-root
        for part in dev proc sys; do mount --rbind /$part layer-root/$part; done
        printf '#!/bin/sh\\nexit 101\\n' > layer-root/usr/sbin/policy-rc.d
        chmod 755 layer-root/usr/sbin/policy-rc.d
        export DEBIAN_FRONTEND=noninteractive
        chroot layer-root apt-get update -qq
        chroot layer-root apt-get install -y -qq --no-install-recommends {' '.join(packages)}
        rm layer-root/usr/sbin/policy-rc.d"""
    run("unshare", "--mount", "bash", "-c", script)


def cgroups(name):
    """The group of the lab's processes in each hierarchy that systemd wants."""
    top = pathlib.Path("/sys/fs/cgroup")
    hierarchies = [top / "systemd", top / "unified"] if (top / "systemd").exists() else [top]
    return [hierarchy / name for hierarchy in hierarchies if hierarchy.exists()]


def forget_cgroups(name):
    for top in cgroups(name):
        folders = sorted(top.rglob("*"), key=lambda path: -len(path.parts)) if top.exists() else []
        for folder in [folder for folder in folders if folder.is_dir()] + [top]:
            # The last processes of a lab may still be ending.
            for _ in range(50):
                try:
                    folder.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.1)


class Lab:
    """The network that hosts are on, and the key that opens them."""

    def __init__(self, folder):
        self.folder = folder
        self.hosts = {}
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "br0", "type", "bridge")
        run("ip", "address", "add", f"{GATEWAY}/24", "dev", "br0")
        run("ip", "link", "set", "br0", "up")
        self.key, self.host_key, self.known = folder / "key", folder / "host-key", folder / "known_hosts"
        for key in [self.key, self.host_key]:
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", str(key))

    def boot(self, addresses):
        """Boots a host for each name and address, side by side."""
        for name, address in addresses.items():
            self.hosts[name] = Host(self, name, address)
        public = " ".join((self.folder / "host-key.pub").read_text().split()[:2])
        self.known.write_text("".join(f"{host.address} {public}\n" for host in self.hosts.values()))
        for name in addresses:
            until(f"{name} has booted", self.hosts[name].is_up, BOOT_S)

    def ssh_options(self):
        options = [f"UserKnownHostsFile={self.known}", "BatchMode=yes", "ConnectTimeout=5", "LogLevel=ERROR"]
        return ["-i", str(self.key), *(word for option in options for word in ("-o", option))]


class Host:
    """One host."""

    def __init__(self, lab, name, address):
        self.lab, self.name, self.address = lab, name, address
        folder = lab.folder / name
        parts = [folder / part for part in ("files", "work", "root")]
        for part in parts:
            part.mkdir(parents=True)
        files, work, self.root = parts
        below = [str(lab.folder / "layer")] if (lab.folder / "layer").exists() else []
        lower = ":".join([*below, "/"])
        run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir={lower},upperdir={files},workdir={work}", str(self.root))
        self.furnish()
        self.start()

    def furnish(self):
        """Makes a bare host of what this machine's root holds: no services but ssh and its network."""
        units = self.root / "etc/systemd/system"
        for wants in [*units.glob("*.wants"), *units.glob("*.requires")]:
            shutil.rmtree(wants)
        wants = units / "multi-user.target.wants"
        wants.mkdir()
        for unit in ["ssh.service", "systemd-networkd.service"]:
            (wants / unit).symlink_to(f"/lib/systemd/system/{unit}")
        (units / "default.target").unlink(missing_ok=True)
        (units / "default.target").symlink_to("/lib/systemd/system/multi-user.target")
        for timer in (self.root / "lib/systemd/system/timers.target.wants").glob("*"):
            (units / timer.name).unlink(missing_ok=True)
            (units / timer.name).symlink_to("/dev/null")
        shutil.rmtree(self.root / "etc/network", ignore_errors=True)
        networks = self.root / "etc/systemd/network"
        shutil.rmtree(networks, ignore_errors=True)
        networks.mkdir()
        (networks / "10-host0.network").write_text(f"[Match]\nName=host0\n[Network]\nAddress={self.address}/24\nIPv6AcceptRA=no\n")
        (self.root / "etc/machine-id").write_text("")
        (self.root / "etc/hostname").write_text(f"{self.name}\n")
        # What this machine's root has made of the shell would be run for every command.
        for start in [".bashrc", ".bash_profile", ".bash_login", ".profile"]:
            (self.root / "root" / start).unlink(missing_ok=True)
        keys = self.root / "root/.ssh"
        shutil.rmtree(keys, ignore_errors=True)
        keys.mkdir(mode=0o700)
        shutil.copy(self.lab.folder / "key.pub", keys / "authorized_keys")
        for old in (self.root / "etc/ssh").glob("ssh_host_*"):
            old.unlink()
        host_key = self.root / "etc/ssh/ssh_host_ed25519_key"
        shutil.copy(self.lab.host_key, host_key)
        host_key.chmod(0o600)

    def start(self):
        group = self.lab.folder.name
        groups = [top / self.name for top in cgroups(group)]

        def join():
            for folder in groups:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "cgroup.procs").write_text("0")

        command = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", f"--directory={self.root}"]
        command += [f"--machine={self.name}", "--boot", "--network-bridge=br0", "--console=pipe", "--link-journal=no"]
        with open(self.lab.folder / f"{self.name}.log", "ab") as log:
            # Of /proc/sys what belongs to the host's network may be written, as on a machine of its own.
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=join,
                env=os.environ | {"SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network"},
            )

    def is_up(self):
        if self.process.poll() is not None:
            log = (self.lab.folder / f"{self.name}.log").read_text(errors="replace")
            raise Failed(f"{self.name} does not boot: {log}")
        return self.try_ssh("systemctl is-system-running | grep -Eq 'running|degraded'").returncode == 0

    def try_ssh(self, script, **options):
        options = {"stdin": subprocess.DEVNULL, "timeout": 120} | options
        command = ["ssh", *self.lab.ssh_options(), f"root@{self.address}", script]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)

    def ssh(self, script):
        """What a script says that must succeed there."""
        done = self.try_ssh(script)
        hold(done.returncode == 0, f"{self.name}: {script}: exit code {done.returncode}\n{done.stdout}")
        return done.stdout

    def put(self, source, target):
        """Copies a file of this machine to the host."""
        path = self.root / target.lstrip("/")
        hold(path.parent.exists(), f"{self.name} has no {path.parent}")
        run("scp", "-q", *self.lab.ssh_options(), str(source), f"root@{self.address}:{target}")


def main(script, work):
    """Runs the work in a lab; what it fails with is said with what the hosts logged last."""
    folder = inside(script)
    lab = Lab(folder)
    try:
        work(lab)
    except Failed as failed:
        print(f"\nFAILED: {failed}", file=sys.stderr)
        for host in lab.hosts.values():
            log = host.try_ssh("journalctl --no-pager -n 30 -u cacheboy; systemctl --failed --no-pager")
            booting = (folder / f"{host.name}.log").read_text(errors="replace")[-3000:]
            print(f"\n--- {host.name}\n{booting}{log.stdout}", file=sys.stderr)
        sys.exit(1)

"""What templates of Cacheboy's roles need: TOML from YAML, and the ports that a config listens on."""

import json
import re

from ansible.errors import AnsibleFilterError

BARE = re.compile(r"[A-Za-z0-9_-]+\Z")


def key(name):
    return name if BARE.match(name) else json.dumps(name, ensure_ascii=False)


def inline(value, where):
    """A value on one line. Strings of JSON are strings of TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(str(value), ensure_ascii=False)
    if isinstance(value, dict):
        pairs = [f"{key(name)} = {inline(one, f'{where}.{name}')}" for name, one in value.items()]
        return "{ " + ", ".join(pairs) + " }" if pairs else "{}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(inline(one, where) for one in value) + "]"
    raise AnsibleFilterError(f"{where}: TOML has nothing for {value!r}: leave the key out")


def is_tables(value):
    return isinstance(value, list) and value != [] and all(isinstance(one, dict) for one in value)


def table(path, content):
    """Lines of a table: its own keys first, then the tables in it."""
    deeper = {name: value for name, value in content.items() if isinstance(value, dict) or is_tables(value)}
    for name, value in content.items():
        if name not in deeper:
            yield f"{key(name)} = {inline(value, '.'.join([*path, name]))}"
    for name, value in deeper.items():
        below = [*path, name]
        title = ".".join(map(key, below))
        for one in value if isinstance(value, list) else [value]:
            yield ""
            yield f"[[{title}]]" if isinstance(value, list) else f"[{title}]"
            yield from table(below, one)


def cacheboy_toml(config):
    """A config as TOML, in the order of its keys."""
    return "\n".join(table([], config)).lstrip("\n") + "\n"


def cacheboy_ports(listen, protocol):
    """The ports of a list of listeners, for tcp or udp: those of HTTP/3 are udp too."""
    listeners = [one if isinstance(one, dict) else {"address": one} for one in listen]
    if protocol == "udp":
        listeners = [one for one in listeners if one.get("http3")]
    return sorted({int(one["address"].rsplit(":", 1)[1]) for one in listeners})


class FilterModule:
    """The filters, by name."""

    def filters(self):
        return {"cacheboy_toml": cacheboy_toml, "cacheboy_ports": cacheboy_ports}

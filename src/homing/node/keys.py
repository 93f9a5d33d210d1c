"""Who may connect to a node, proven how, to do what: the key file and the users file.

The users file has one user a line: a name, a colon, the password (PLAIN) or public key in Z85
(CURVE), then rights. `#` starts a comment.

    ann:secret                        # call and serve anything
    bob:secret call=echo,math.*       # call these two, serve nothing
    wes:secret serve=*                # serve anything, call nothing
    lyon:secret peer=lyon             # the broker named lyon

The key file is what `homing keys new` writes: two lines, `public KEY` and `secret KEY`, in Z85.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from pathlib import Path

from homing.config.settings import Security
from homing.errors import ConfigError, Denied
from homing.service.access import Access
from homing.wire.curve import CurveClient, CurveServer, KeyPair
from homing.wire.mechanisms import Mechanism, PlainClient, PlainServer
from homing.wire.z85 import from_z85, z85
from homing.wire.zmtp import NULL

_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class User:
    """One line of the users file."""

    name: str
    credential: str
    call: tuple[str, ...] = ()
    serve: tuple[str, ...] = ()
    peer: str = ""


@dataclass(frozen=True, slots=True)
class Keyring:
    """What a node needs to know its peers and to be known by them."""

    mechanism: str = "null"
    users: tuple[User, ...] = ()
    keys: KeyPair | None = None
    by_key: dict[bytes, str] = field(default_factory=dict)
    listed: bool = False  # there is a users file: who is not in it is nobody, be it empty

    @staticmethod
    def load(security: Security) -> Keyring:
        """Read the files that the settings name; ConfigError says all that is wrong."""
        if security.mechanism == "null":
            return Keyring()
        users = read_users(Path(security.users_file)) if security.users_file else ()
        if security.mechanism == "plain":
            return Keyring("plain", users, listed=True)
        if not security.key_file:
            raise ConfigError(["security.key_file: CURVE needs a key pair: `homing keys new`"])
        keys, listed = read_keys(Path(security.key_file)), bool(security.users_file)
        return Keyring("curve", users, keys, _by_key(users), listed)

    @property
    def access(self) -> Access:
        """The allow-lists; without a users file everybody who gets in may do everything."""
        if not self.listed:
            return Access()
        return Access(
            {user.name: user.call for user in self.users},
            {user.name: user.serve for user in self.users},
            {user.name: user.peer for user in self.users if user.peer},
        )

    def server(self) -> Mechanism:
        """For sockets that others connect to."""
        if self.mechanism == "plain":
            return PlainServer(self._password)
        if self.keys is not None:
            return CurveServer(self.keys, self._known if self.listed else None)
        return NULL

    def client(self, peer: str, own: str) -> Mechanism:
        """For a socket that connects, as the broker `own`, to the broker `peer`."""
        if self.mechanism == "plain":
            us = self._peer(own)
            return PlainClient(us.name, us.credential)
        if self.keys is not None:
            return CurveClient(from_z85(self._peer(peer).credential), self.keys)
        return NULL

    def revoked(self, fresh: Keyring) -> set[str]:
        """Users of ours who are gone in a fresh one, or prove themselves otherwise there."""
        now = {user.name: user.credential for user in fresh.users}
        return {user.name for user in self.users if now.get(user.name) != user.credential}

    def _peer(self, broker: str) -> User:
        for user in self.users:
            if user.peer == broker:
                return user
        raise ConfigError([f"the users file has no line with peer={broker}"])

    def _password(self, name: str, password: str) -> str:
        for user in self.users:
            if user.name == name and hmac.compare_digest(
                user.credential.encode(), password.encode()
            ):
                return name
        raise Denied(name)

    def _known(self, key: bytes) -> str:
        name = self.by_key.get(key)
        if name is None:
            raise Denied(z85(key))
        return name


def _by_key(users: tuple[User, ...]) -> dict[bytes, str]:
    problems: list[str] = []
    found: dict[bytes, str] = {}
    for user in users:
        try:
            key = from_z85(user.credential)
        except ValueError:
            key = b""
        if len(key) != _KEY_BYTES:
            problems.append(f"users file: {user.name}: not a public key of 40 Z85 characters")
        found[key] = user.name
    if problems:
        raise ConfigError(problems)
    return found


def read_users(path: Path) -> tuple[User, ...]:
    """All users of a users file."""
    users: list[User] = []
    problems: list[str] = []
    for number, line in enumerate(_lines(path), 1):
        words = _without_comment(line).split()
        if not words:
            continue
        try:
            users.append(_user(words))
        except ValueError as error:
            problems.append(f"{path}:{number}: {error}")
    names = [user.name for user in users]
    problems += [
        f"{path}: {name} twice" for name in sorted({n for n in names if names.count(n) > 1})
    ]
    if problems:
        raise ConfigError(problems)
    return tuple(users)


def _without_comment(line: str) -> str:
    """Z85 has `#` in it: a comment starts a line or follows a space."""
    return "" if line.startswith("#") else line.split(" #", 1)[0]


def _user(words: list[str]) -> User:
    name, colon, credential = words[0].partition(":")
    if not (name and colon and credential):
        raise ValueError("expected name:password or name:public-key")
    if len(words) == 1:
        return User(name, credential, ("*",), ("*",))
    rights: dict[str, str] = {}
    for word in words[1:]:
        right, mark, value = word.partition("=")
        if not mark or right not in ("call", "serve", "peer") or not value:
            raise ValueError(f"{word!r}: expected call=…, serve=… or peer=…")
        rights[right] = value
    call, serve = (tuple(filter(None, rights.get(r, "").split(","))) for r in ("call", "serve"))
    return User(name, credential, call, serve, rights.get("peer", ""))


def read_keys(path: Path) -> KeyPair:
    """The pair in a key file."""
    lines = _lines(path, "`homing keys new FILE` makes a key file")
    found = dict(line.split(None, 1) for line in lines if len(line.split(None, 1)) == 2)
    try:
        public, secret = (from_z85(found[kind].strip()) for kind in ("public", "secret"))
    except (KeyError, ValueError):
        public = secret = b""
    if len(public) != _KEY_BYTES or len(secret) != _KEY_BYTES:
        raise ConfigError([f"{path}: no key file: expected `public KEY` and `secret KEY` in Z85"])
    return public, secret


def key_text(keys: KeyPair) -> str:
    """A key file's content."""
    return f"public {z85(keys[0])}\nsecret {z85(keys[1])}\n"


def _lines(path: Path, hint: str | None = None) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError([f"{path}: {why}"], hint=hint) from error

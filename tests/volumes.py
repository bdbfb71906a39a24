"""Encrypted folders for tests: gocryptfs over FUSE, the kernel's own on a loop file. Undone after.

Tests are left out on a machine that lacks what this needs.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.needs import check, lacking

_LOOP_BYTES = 32 * 2**20


@contextlib.contextmanager
def gocryptfs(folder: Path) -> Iterator[Path]:
    """A folder that gocryptfs encrypts into the folder beside it; every user may enter.

    We mount it ourselves and hand it over: its own helper is in another package.
    """
    check("gocryptfs", "mount", "root", "/dev/fuse")
    cipher, plain, secret = folder / "cipher", folder / "encrypted", folder / "secret"
    for made in (cipher, plain):
        made.mkdir()
        made.chmod(0o755)
    secret.write_text("a secret of a test\n")
    subprocess.run(["gocryptfs", "-init", "-q", "-passfile", secret, cipher], check=True)
    fuse = os.open("/dev/fuse", os.O_RDWR)
    rules = f"fd={fuse},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
    mount = ["mount", "-i", "-t", "fuse", "gocryptfs", plain, "-o", f"{rules},subtype=gocryptfs"]
    try:
        if subprocess.run(mount, pass_fds=[fuse], check=False).returncode:
            lacking("the right to mount")
        words = ["gocryptfs", "-fg", "-q", "-allow_other", "-passfile", secret, cipher]
        served = subprocess.Popen([*words, f"/dev/fd/{fuse}"], pass_fds=[fuse])
    finally:
        os.close(fuse)
    try:
        plain.stat()  # answered as soon as it is served
        yield plain
    finally:
        subprocess.run(["umount", "-l", plain], check=True)
        served.wait(60)


@contextlib.contextmanager
def fscrypt(folder: Path) -> Iterator[Path]:
    """A folder with a policy of the kernel's file encryption, on ext4 in a loop file."""
    check("mkfs.ext4 and e4crypt", "mount", "root")
    image, mounted = folder / "image", folder / "mounted"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(_LOOP_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-O", "encrypt", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, mounted], check=False).returncode:
        lacking("the right to mount")
    try:
        encrypted = mounted / "encrypted"
        encrypted.mkdir()
        key = ["e4crypt", "add_key", "-S", "0x70677061", encrypted]
        done = subprocess.run(key, input="a secret\n", text=True, capture_output=True, check=False)
        if done.returncode:
            lacking("file encryption in the kernel")
        yield encrypted
    finally:
        subprocess.run(["umount", "-l", mounted], check=True)

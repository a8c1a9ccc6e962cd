"""The disk pool and its limits as the kernel holds them, driven through tests/tools/limits_tool.c.

Needs root. Every test has an instance of its own and leaves no mount behind.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest
from limits import MIB, Tool, ToolError, data, instance, mounts_below  # noqa: F401
from waiting import until


def loops_of(path):
    return subprocess.run(["losetup", "-n", "-O", "NAME", "-j", path], capture_output=True, text=True, check=True).stdout.split()


def sync(path):
    subprocess.run(["sync", "-f", path], check=True)


def write_until_full(path, limit=400 * MIB):
    """Writes 64 KiB blocks until it fails; how many bytes went in, and the error."""
    block, n = os.urandom(65536), 0
    with open(path, "wb", buffering=0) as f:
        try:
            while n < limit:
                n += f.write(block)
            os.fsync(f.fileno())
        except OSError as e:
            return n, e.errno
    return n, 0


@pytest.fixture
def tool(instance, data):
    t = Tool(instance)
    yield t
    t("remove-tree")
    t.close()


@pytest.fixture
def disk(tool, data):
    kind, path, *_ = tool("pool", data / "d", 1024).split(" ", 2)
    tool.pool, tool.kind = Path(path), kind
    return tool


@pytest.fixture
def overlay(disk):
    """An overlay whose upper is limited to 40 MiB, over a folder with a setuid program."""
    lower, merged = disk.pool.parents[1] / "lower", disk.pool.parents[1] / "merged"
    lower.mkdir(mode=0o755)
    merged.mkdir()
    subprocess.run(["cp", "/usr/bin/id", lower / "id"], check=True)
    (lower / "id").chmod(0o4755)
    disk("upper", "a", 40 * 1024)
    upper = disk.pool / "uppers/a"
    options = f"lowerdir={lower},upperdir={upper}/u,workdir={upper}/w,redirect_dir=on,index=off,metacopy=off"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, merged], check=True)
    yield merged
    subprocess.run(["umount", merged], check=True)


def test_the_pool_is_private_and_its_mount_nosuid_nodev(disk):
    assert disk.kind == "btrfs-image"
    for path in (disk.pool, disk.pool.parent):
        st = path.stat()
        assert (st.st_uid, st.st_mode & 0o777) == (0, 0o700)
    options = next(line.split()[5] for line in Path("/proc/self/mountinfo").read_text().splitlines() if line.split()[4] == str(disk.pool))
    assert {"nosuid", "nodev"} <= set(options.split(","))


def test_an_upper_is_full_at_its_limit_and_its_neighbour_is_not(disk):
    disk("upper", "a", 40 * 1024)
    disk("upper", "b", 40 * 1024)
    n, error = write_until_full(disk.pool / "uppers/a/u/x")
    assert error in (28, 122), "ENOSPC or EDQUOT"
    assert 36 * MIB < n <= 41 * MIB
    assert write_until_full(disk.pool / "uppers/b/u/x", 20 * MIB) == (20 * MIB, 0)
    sync(disk.pool)
    assert abs(int(disk("upper-usage", "b")) - 20 * MIB) < MIB
    disk("upper-limit", "a", 60 * 1024)
    n, error = write_until_full(disk.pool / "uppers/a/u/y")
    assert error in (28, 122) and 16 * MIB < n <= 21 * MIB
    disk("upper-limit", "a", 0)
    assert write_until_full(disk.pool / "uppers/a/u/z", 70 * MIB) == (70 * MIB, 0)


def test_removing_files_gives_room_again(disk):
    disk("upper", "a", 40 * 1024)
    for _ in range(3):
        n, _ = write_until_full(disk.pool / "uppers/a/u/x")
        assert n > 36 * MIB
        (disk.pool / "uppers/a/u/x").unlink()
        sync(disk.pool)


def test_the_limit_holds_through_an_overlay(overlay):
    n, error = write_until_full(overlay / "x")
    assert error in (28, 122)
    assert 36 * MIB < n <= 41 * MIB


@pytest.mark.slow
def test_many_small_files_count_too(overlay, disk):
    disk("upper-limit", "a", 3 * 1024)
    with pytest.raises(OSError) as e:
        for i in range(200000):
            (overlay / f"f{i}").write_bytes(b"x" * 100)
    assert e.value.errno in (28, 122)


def test_setuid_programs_work_over_a_nosuid_pool(overlay):
    for step in ("from the lower layer", "copied up"):
        out = subprocess.run([overlay / "id", "-u"], capture_output=True, text=True, user=1000, group=1000, extra_groups=[], check=True)
        assert out.stdout == "0\n", step
        os.utime(overlay / "id")


def test_trash_is_fast_and_emptied_later(disk):
    for id in ("a", "b", "c"):
        disk("upper", id, 40 * 1024)
    deep = disk.pool / "uppers/a/u"
    for i in range(60):
        deep = deep / f"d{i}"
    deep.mkdir(parents=True)
    (deep / "file").write_bytes(b"x" * MIB)
    disk("trash", "a")
    disk("trash", "a")
    disk("trash", "no")
    assert sorted(disk("uppers").split()) == ["b", "c"]
    assert len(os.listdir(disk.pool / "trash")) == 1
    disk("empty")
    assert os.listdir(disk.pool / "trash") == []
    with pytest.raises(ToolError, match="not_found"):
        disk("upper-usage", "a")
    disk("upper", "a", 40 * 1024)
    with pytest.raises(ToolError, match="already_exists"):
        disk("upper", "a", 40 * 1024)


@pytest.mark.slow
def test_quota_groups_of_removed_uppers_do_not_stay(disk):
    def groups():
        out = subprocess.run(["btrfs", "qgroup", "show", "--raw", disk.pool], capture_output=True, text=True, check=True).stdout
        return len(re.findall(r"^0/\d{3,}", out, re.M))

    for i in range(20):
        disk("upper", f"u{i}", 1024)
    assert groups() == 20
    for i in range(20):
        disk("trash", f"u{i}")
    disk("empty")


    def are_gone():
        sync(disk.pool)
        disk("empty")
        return groups() == 0

    until(are_gone)  # the kernel's cleaner comes by every 30 s


def test_a_killed_engine_leaves_one_mount_that_the_next_one_uses(instance, data):
    first = Tool(instance)
    pool = Path(first("pool", data / "d", 1024).split(" ")[1])
    first("upper", "a", 1024)
    first.process.kill()
    first.process.wait()
    second = Tool(instance)
    assert second("pool", data / "d", 1024).split(" ")[1] == str(pool)
    assert second("uppers") == "a"
    assert mounts_below(data) == [str(pool)]
    assert len(loops_of(pool.parent / "disk.img")) == 1
    second("unmount")
    assert mounts_below(data) == []
    until(lambda: loops_of(pool.parent / "disk.img") == [])
    second("pool", data / "d", 0)
    assert second("uppers") == "a"
    second("remove-tree")
    second.close()


def test_an_image_that_is_mounted_elsewhere_is_not_opened_through_a_second_device(instance, data):
    first = Tool(instance)
    pool = Path(first("pool", data / "d", 1024).split(" ")[1])
    holder = subprocess.Popen(["unshare", "-m", "--propagation", "private", "sh", "-c", "echo; sleep 60"], stdout=subprocess.PIPE)
    holder.stdout.readline()
    try:
        first("unmount")
        assert len(loops_of(pool.parent / "disk.img")) == 1
        first("pool", data / "d", 1024)
        assert len(loops_of(pool.parent / "disk.img")) == 1
        first("upper", "a", 1024)
    finally:
        holder.kill()
        holder.wait()
        first("remove-tree")
        first.close()


def test_what_is_mounted_from_elsewhere_is_refused(tool, data):
    """A deleted image is dropped by an engine that starts (test_serve.py), by nobody else."""
    pool = Path(tool("pool", data / "d", 1024).split(" ")[1])
    (pool.parent / "disk.img").unlink()
    with pytest.raises(ToolError, match=f"'{pool}' is mounted from an image that was deleted: start the service again"):
        tool("pool", data / "d", 1024)
    subprocess.run(["umount", pool], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", pool], check=True)
    for _ in range(2):
        with pytest.raises(ToolError, match=f"'{pool}' is mounted from none, but not from the image beside it: unmount it"):
            tool("pool", data / "d", 1024)
        assert mounts_below(data) == [str(pool)]
        (pool.parent / "disk.img").write_bytes(b"\0" * 65600 + b"_BHRfS_M")  # as far as it is looked at before
    subprocess.run(["umount", pool], check=True)
    (pool.parent / "disk.img").unlink()
    tool("pool", data / "d", 1024)


def test_a_pool_in_use_is_not_unmounted(disk):
    disk("upper", "a", 1024)
    with open(disk.pool / "uppers/a/u/x", "w"):
        with pytest.raises(ToolError, match="busy"):
            disk("unmount")
        assert disk("uppers") == "a"
    disk("unmount")


def test_the_image_grows_and_never_shrinks(disk):
    def size():
        st = os.statvfs(disk.pool)
        return st.f_blocks * st.f_frsize // MIB

    assert size() == 1024
    disk("pool", disk.pool.parents[1], 2048)
    assert size() == 2048
    disk("pool", disk.pool.parents[1], 512)
    assert size() == 2048
    disk("unmount")
    disk("pool", disk.pool.parents[1], 3072)
    assert size() == 3072


@pytest.mark.parametrize("what", ["mode", "owner", "link", "parent"])
def test_a_pool_that_others_can_enter_is_refused(tool, data, what):
    pool = data / "d/pool"
    pool.mkdir(parents=True)
    pool.chmod(0o700)
    (data / "d").chmod(0o711)
    if what == "mode":
        pool.chmod(0o750)
    elif what == "owner":
        os.chown(pool, 1000, 0)
    elif what == "link":
        pool.rename(data / "elsewhere")
        pool.symlink_to(data / "elsewhere")
    else:
        (data / "d").chmod(0o777)
    with pytest.raises(ToolError, match="open to others|Not a directory|symbolic link"):
        tool("pool", data / "d", 1024)
    assert mounts_below(data) == []


def test_a_btrfs_data_dir_is_the_pool_itself(tool, data):
    image, mount = data / "host.img", data / "host"
    mount.mkdir()
    with open(image, "wb") as f:
        f.truncate(600 * MIB)
    subprocess.run(["mkfs.btrfs", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, mount], check=True)
    assert tool("pool", mount / "d", 1024) == f"btrfs {mount}/d/pool"
    tool("upper", "a", 40 * 1024)
    n, error = write_until_full(mount / "d/pool/uppers/a/u/x")
    assert error in (28, 122) and 36 * MIB < n <= 41 * MIB
    tool("trash", "a")
    tool("empty")


def has_xfs_quota(folder):
    """Can this kernel mount xfs with project quotas? Also leaves that file system mounted on folder/host."""
    image, mount = folder / "xfs.img", folder / "host"
    mount.mkdir()
    with open(image, "wb") as f:
        f.truncate(400 * MIB)
    subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", image], check=True)
    return subprocess.run(["mount", "-o", "loop,prjquota", image, mount], stderr=subprocess.DEVNULL).returncode == 0


@pytest.fixture
def xfs(tool, data):
    if not has_xfs_quota(data):
        pytest.skip("no project quotas for xfs in this kernel")
    tool.pool = data / "host/d/pool"
    assert tool("pool", data / "host/d", 1024) == f"xfs {tool.pool}"
    return tool


def check_limit(tool, pool):
    tool("upper", "a", 40 * 1024)
    tool("upper", "b", 40 * 1024)
    n, error = write_until_full(pool / "uppers/a/u/x")
    assert error in (28, 122) and 36 * MIB < n <= 41 * MIB
    assert write_until_full(pool / "uppers/b/u/x", 20 * MIB) == (20 * MIB, 0)
    sync(pool)
    assert abs(int(tool("upper-usage", "b")) - 20 * MIB) < MIB
    tool("upper-limit", "a", 60 * 1024)
    n, error = write_until_full(pool / "uppers/a/u/y")
    assert error in (28, 122) and 16 * MIB < n <= 21 * MIB
    tool("trash", "a")
    tool("empty")
    assert tool("uppers") == "b"


def test_an_xfs_data_dir_with_project_quotas_is_the_pool_itself(xfs):
    check_limit(xfs, xfs.pool)


WITHOUT_BTRFS = ("unshare", "-m", "sh", "-c", 'mount --bind /dev/null "$(realpath /usr/sbin/mkfs.btrfs)" && exec "$0" "$@"')


def test_without_btrfs_the_image_is_xfs_or_the_pool_a_folder(instance, data):
    (data / "try").mkdir()
    quota = has_xfs_quota(data / "try")
    tool = Tool(instance, prefix=WITHOUT_BTRFS)
    kind, path, *why = tool("pool", data / "d", 1024).split(" ", 2)
    if quota:
        assert (kind, why) == ("xfs-image", [])
        pool = Path(f"/proc/{tool.process.pid}/root{path}")  # mounted there only
        check_limit(tool, pool)
        tool("pool", data / "d", 1500)
        st = os.statvfs(pool)
        assert st.f_blocks * st.f_frsize > 1300 * MIB
        assert tool("uppers") == "b"
        tool("unmount")
    else:
        assert kind == "plain"
        assert "xfs" in why[0]
        assert not (data / "d/pool/disk.img").exists()
    tool("remove-tree")
    tool.close()


def test_an_empty_folder_is_not_taken_from_those_who_have_it_open(instance, data):
    """As all workers have it when a service starts where no image can be made."""
    mask = 'for p in mkfs.btrfs mkfs.xfs; do p=$(realpath /usr/sbin/$p) && [ -e "$p" ] && mount --bind /dev/null "$p"; done; exec "$0" "$@"'
    first, second = tools = [Tool(instance, prefix=("unshare", "-m", "sh", "-c", mask)) for _ in range(2)]
    for tool in tools:
        assert tool("pool", data / "d", 1024).startswith("plain ")
    first("upper", "a", 1024)
    assert second("uppers") == "a"
    first("trash", "a")
    second("empty")
    first("remove-tree")
    for tool in tools:
        tool.close()


def test_two_pools_side_by_side(disk, instance, data):
    other = Tool(instance + "b")
    path = Path(other("pool", data / "e", 1024).split(" ")[1])
    disk("upper", "a", 1024)
    other("upper", "b", 1024)
    assert (disk("uppers"), other("uppers")) == ("a", "b")
    other("unmount")
    assert mounts_below(data) == [str(disk.pool)]
    assert not (path / "uppers").exists()
    other("remove-tree")
    other.close()


def test_a_folder_that_was_used_without_an_image_stays_one(tool, data):
    pool = data / "d/pool"
    (pool / "uppers/a/u").mkdir(parents=True)
    for path in (pool, pool / "uppers", pool / "uppers/a"):
        path.chmod(0o700)
    (data / "d").chmod(0o711)
    assert tool("pool", data / "d", 1024).startswith(f"plain {pool} it was one before")
    assert tool("uppers") == "a"
    tool("upper", "b", 1024)
    tool("trash", "b")
    tool("empty")
    assert os.listdir(pool / "trash") == []
    with pytest.raises(ToolError, match="unimplemented"):
        tool("upper-usage", "a")


def change_places(tool, pool):
    """Of a copy and what it was made of, changed meanwhile."""
    tool("upper", "a", 40 * 1024)
    (pool / "uppers/a/u/f").write_text("first")
    tool("upper-clone", "a", "b")
    (pool / "uppers/a/u/f").write_text("second")
    read = lambda name: (pool / f"uppers/{name}/u/f").read_text()  # noqa: E731
    with pytest.raises(ToolError, match="failed_precondition"):
        tool("upper-exchange", "a", "b", "m1", 1)
    assert (read("a"), read("b")) == ("second", "first")
    for look in (0, 0, 1):  # once, however often it is asked for
        tool("upper-exchange", "a", "b", "m1", look)
        assert (read("a"), read("b")) == ("first", "second")
    # A copy of what bears a mark bears another one's.
    tool("upper-clone", "a", "c")
    (pool / "uppers/c/u/f").write_text("third")
    tool("upper-exchange", "a", "c", "m2", 0)
    assert (read("a"), read("b"), read("c")) == ("third", "second", "first")
    with pytest.raises(ToolError, match="failed_precondition"):
        tool("upper-exchange", "a", "b", "m1", 1)
    with pytest.raises(ToolError, match="failed_precondition.*No such file"):
        tool("upper-exchange", "a", "none", "m3", 0)
    with pytest.raises(ToolError, match="failed_precondition"):
        tool("upper-exchange", "none", "a", "m3", 1)
    # What cannot be looked at may have been done.
    (pool / "uppers/odd").write_text("")
    with pytest.raises(ToolError, match="unavailable"):
        tool("upper-exchange", "odd", "a", "m3", 0)
    (pool / "uppers/odd").unlink()
    # What is asked again when the other one is gone.
    tool("trash", "c")
    tool("upper-exchange", "a", "c", "m2", 0)
    assert (read("a"), read("b")) == ("third", "second")
    with pytest.raises(ToolError, match="can't be the name"):
        tool("upper-exchange", "a", "b", "../m", 0)


def test_uppers_change_places(disk):
    change_places(disk, disk.pool)
    disk("upper-limit", "a", 40 * 1024)
    n, error = write_until_full(disk.pool / "uppers/a/u/x")
    assert error in (28, 122) and 36 * MIB < n <= 41 * MIB


def test_uppers_change_places_in_a_plain_folder(tool, data):
    pool = data / "d/pool"
    (pool / "uppers/x/u").mkdir(parents=True)
    for path in (pool, pool / "uppers", pool / "uppers/x"):
        path.chmod(0o700)
    (data / "d").chmod(0o711)
    assert tool("pool", data / "d", 1024).startswith(f"plain {pool}")
    change_places(tool, pool)


def test_uppers_change_places_on_xfs(xfs):
    change_places(xfs, xfs.pool)


def test_a_mount_keeps_the_upper_that_it_had(disk, overlay):
    (overlay / "f").write_text("old")
    disk("upper", "b", 40 * 1024)
    (disk.pool / "uppers/b/u/f").write_text("new")
    disk("upper-exchange", "a", "b", "m", 0)
    (overlay / "g").write_text("later")
    assert (overlay / "f").read_text() == "old"
    assert (disk.pool / "uppers/a/u/f").read_text() == "new" and not (disk.pool / "uppers/a/u/g").exists()
    assert (disk.pool / "uppers/b/u/g").read_text() == "later"
    assert write_until_full(overlay / "x")[1] in (28, 122)  # its limit, too
    disk("trash", "b")
    assert (overlay / "f").read_text() == "old"

"""Rows of templates, volumes and secrets."""

import inspect
import time

from python_client import Sandbox, Secret, Template, Volume, all_items, m, row, w


def small_template():
    return Template().from_template("base").run_cmd("echo built >/home/user/built")


@row("Template.build")
async def _(x):
    name = f"compat-{time.time_ns()}"
    await w(Template.build(small_template(), name) if takes_name() else Template.build(small_template(), alias=name))
    box = await w(Sandbox.create(template=name, timeout=300))
    x.made.append(box)
    assert await w(box.files.read("/home/user/built")) == "built\n"


def takes_name():
    return "name" in inspect.signature(Template.build).parameters


@row("Template.build_in_background")
async def _(x):
    await w(Template.build_in_background(small_template(), f"compat-{time.time_ns()}"))


@row("Template.get_build_status")
async def _(x):
    kept = {"template_id": "no-such-template", "build_id": "00000000-0000-4000-8000-000000000000", "name": "n", "alias": "n",
            "tags": []}
    names = inspect.signature(m.BuildInfo).parameters
    await w(Template.get_build_status(m.BuildInfo(**{k: v for k, v in kept.items() if k in names})))


@row("Template.exists")
async def _(x):
    assert await w(Template.exists("base")) is True


@row("Template.alias_exists")
async def _(x):
    assert await w(Template.alias_exists("base")) is True


@row("Template.assign_tags")
async def _(x):
    await w(Template.assign_tags("base:default", ["compat"]))


@row("Template.get_tags")
async def _(x):
    await w(Template.get_tags("base"))


@row("Template.remove_tags")
async def _(x):
    await w(Template.remove_tags("base", ["compat"]))


row.without_wire(*(f"Template.{n}" for n in (
    "from_alpine_image", "from_arch_image", "from_aws_registry", "from_base_image", "from_bun_image", "from_debian_image",
    "from_dockerfile", "from_fedora_image", "from_gcp_registry", "from_image", "from_node_image", "from_python_image",
    "from_template", "from_ubuntu_image", "skip_cache", "to_dockerfile", "to_json")))


async def volume(x):
    return await w(Volume.create(f"compat-{time.time_ns()}"))


@row("Volume.create", "Volume.destroy")
async def _(x):
    made = await volume(x)
    assert await w(Volume.destroy(made.volume_id)) is True
    assert await w(Volume.destroy(made.volume_id)) is False


@row("Volume.connect")
async def _(x):
    await w(Volume.connect("no-such-volume"))


@row("Volume.get_info")
async def _(x):
    await w(Volume.get_info("no-such-volume"))


@row("Volume.list")
async def _(x):
    assert isinstance(await w(Volume.list()), list)


def volume_row(method, *args, before=None):
    async def call(x):
        try:
            await w(getattr(Volume(volume_id="no-such-volume", name="n", token="t"), method.split()[0])(*args))
        except Exception as error:
            assert type(error).__module__.split(".")[0] == m.__name__, error
        made = await volume(x)
        if before:
            await w(made.write_file(before, "content"))
        result = await w(getattr(made, method.split()[0])(*args))
        assert result == "content" or method != "read_file"
        await w(Volume.destroy(made.volume_id))

    row(f"Volume.{method}")(call)


volume_row("write_file", "/a.txt", "a")
volume_row("read_file", "/a.txt", before="/a.txt")
volume_row("list (content)", "/")
volume_row("get_info (content)", "/")
volume_row("make_dir", "/d")
volume_row("exists", "/a.txt")
volume_row("update_metadata", "/a.txt", before="/a.txt")
volume_row("remove", "/a.txt", before="/a.txt")


@row("Secret.create")
async def _(x):
    await w(Secret.create(f"compat-{time.time_ns()}", "value"))


@row("Secret.update")
async def _(x):
    await w(Secret.update("no-such-secret", "value"))


@row("Secret.get_info")
async def _(x):
    await w(Secret.get_info("no-such-secret"))


@row("Secret.list", "SecretPaginator.next_items")
async def _(x):
    await all_items(await w(Secret.list()))


@row("Secret.exists")
async def _(x):
    await w(Secret.exists("no-such-secret"))


@row("Secret.destroy")
async def _(x):
    await w(Secret.destroy("no-such-secret"))


row.without_wire("Secret.fill", "Secret.iam_token")

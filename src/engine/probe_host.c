/* probe_host.c - what else is on the machine: tools, port, KVM, CRIU, security modules. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "engine/cgroup_internal.h"
#include "engine/checkpoint.h"
#include "engine/disk_internal.h"
#include "engine/probe_internal.h"
#include "net/port_holder.h"

#define PORT 8490 /* of `abx serve` without --listen */

void probe_port(const struct probe_env *env, struct probe_check *ret)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons(PORT),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    char holder[PORT_HOLDER_SIZE];

    /* Connections that just ended don't count. */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) == 0) {
        probe_set(ret, PROBE_OK, "", "", "%d is free", PORT);
    } else if (errno != EADDRINUSE) {
        probe_set(ret, PROBE_INFO, "", "", "%d: %s", PORT, strerror(errno));
    } else {
        (void)port_holder_find("127.0.0.1", PORT, holder, sizeof holder);
        probe_set(ret, PROBE_INFO, "a service may run already", "--listen with another port",
                  "port %d on 127.0.0.1 is taken by %s", PORT, holder);
    }
}

void probe_tools(const struct probe_env *env, struct probe_check *ret)
{
    if (disk_has_tool("mmdebstrap"))
        probe_set(ret, PROBE_OK, "", "", "mmdebstrap is installed");
    else
        probe_set(ret, PROBE_DEGRADED, "the base template can't be made on this machine",
                  "apt-get install mmdebstrap, or copy a template from another machine",
                  "no mmdebstrap");
}

void probe_lsm(const struct probe_env *env, struct probe_check *ret)
{
    char list[160];

    if (cgroup_read_text(AT_FDCWD, "/sys/kernel/security/lsm", list, sizeof list, NULL) < 0) {
        probe_set(ret, PROBE_INFO, "", "", "unknown: /sys/kernel/security is not mounted");
        return;
    }
    list[strcspn(list, "\n")] = '\0';
    probe_set(ret, PROBE_INFO, "", "", "%s", list);
}

void probe_kvm(const struct probe_env *env, struct probe_check *ret)
{
    /* That the device opens does not mean that a machine boots; nothing here depends on it. */
    _cleanup_(closep) int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);

    if (fd >= 0)
        probe_set(ret, PROBE_INFO, "", "", "/dev/kvm opens (not needed)");
    else
        probe_set(ret, PROBE_INFO, "", "", "/dev/kvm: %s (not needed)", strerror(errno));
}

void probe_criu(const struct probe_env *env, struct probe_check *ret)
{
    struct checkpoint c;

    checkpoint_probe(&c);
    if (c.is_possible)
        probe_set(ret, PROBE_INFO,
                  "snapshots and forks hold files alone all the same: this release makes no "
                  "checkpoints of memory yet",
                  "", "%s", c.text);
    else
        probe_set(ret, PROBE_INFO,
                  "snapshots and forks hold files alone (a pause keeps memory as it is)", "",
                  "missing for checkpoints of memory: %s", c.text);
}

/* qemu_init.c - first process of the virtual machine in tests/system/test_qemu.py (static).
 *
 * Started from the initramfs: loads /modules in the order of their names, switches to /dev/vda as
 * root with the usual mounts, runs `/bin/sh /mnt/run.sh` (from /dev/vdb), reaps what is left to it
 * and ends the machine. Everything goes to the console.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 60000

struct mount_point {
    const char *source, *target, *fstype;
    unsigned long flags;
    const char *options;
};

static const struct mount_point first[] = {
    { "proc", "/proc", "proc", 0, NULL },
    { "sysfs", "/sys", "sysfs", 0, NULL },
    { "devtmpfs", "/dev", "devtmpfs", 0, NULL },
};

static const struct mount_point second[] = {
    { "proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL },
    { "sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL },
    { "devtmpfs", "/dev", "devtmpfs", MS_NOSUID, NULL },
    { "devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "ptmxmode=0666" },
    { "shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, NULL },
    { "run", "/run", "tmpfs", MS_NOSUID | MS_NODEV, NULL },
    { "cgroup2", "/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL },
    { "/dev/vdb", "/mnt", "ext4", MS_RDONLY, NULL },
};

static void say(const char *what)
{
    fprintf(stderr, "# init: %s: %s\n", what, strerror(errno));
}

static _Noreturn void end(void)
{
    sync();
    (void)reboot(RB_AUTOBOOT); /* -no-reboot ends the machine */
    for (;;)
        (void)pause();
}

static void mount_all(const struct mount_point *m, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        (void)mkdir(m[i].target, 0755);
        if (mount(m[i].source, m[i].target, m[i].fstype, m[i].flags, m[i].options) < 0)
            say(m[i].target);
    }
}

static void load_modules(void)
{
    struct dirent **list;
    int n = scandir("/modules", &list, NULL, alphasort);

    for (int i = 0; i < n; i++) {
        char path[512];
        int fd;

        if (list[i]->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof path, "/modules/%s", list[i]->d_name);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST)
            say(path);
        (void)close(fd);
    }
}

static void wait_for(const char *path)
{
    for (int ms = 0; access(path, F_OK) < 0 && ms < WAIT_MS; ms += 10)
        (void)nanosleep(&(struct timespec){ 0, 10000000 }, NULL);
}

static void switch_root(void)
{
    (void)mkdir("/root", 0755);
    if (mount("/dev/vda", "/root", "ext4", 0, NULL) < 0 || chdir("/root") < 0 ||
        mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 || chdir("/") < 0) {
        say("root file system");
        end();
    }
}

static void raise_loopback(void)
{
    struct ifreq ifr = { .ifr_flags = IFF_UP };
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    memcpy(ifr.ifr_name, "lo", 3);
    if (ioctl(fd, SIOCSIFFLAGS, &ifr) < 0)
        say("lo");
    (void)close(fd);
}

int main(void)
{
    char *argv[] = { (char[]){ "sh" }, (char[]){ "/mnt/run.sh" }, NULL };
    char *env[] = { (char[]){ "PATH=/usr/sbin:/usr/bin:/sbin:/bin" }, (char[]){ "HOME=/root" },
                    (char[]){ "LC_ALL=C.UTF-8" }, NULL };
    int status = 0;
    pid_t pid, ended;

    mount_all(first, sizeof first / sizeof first[0]);
    load_modules();
    wait_for("/dev/vda");
    wait_for("/dev/vdb");
    /* A second /proc that nobody sees would still count as a visible one for the kernel. */
    for (size_t i = sizeof first / sizeof first[0]; i-- > 0;)
        if (strcmp(first[i].target, "/dev") != 0 && umount2(first[i].target, MNT_DETACH) < 0)
            say(first[i].target);
    switch_root();
    mount_all(second, sizeof second / sizeof second[0]);
    raise_loopback();
    pid = fork();
    if (pid == 0) {
        (void)setsid();
        (void)execve("/bin/sh", argv, env);
        _exit(127);
    }
    do {
        ended = wait(&status);
    } while (ended != pid && (ended >= 0 || errno == EINTR));
    fprintf(stderr, "# end of run.sh: status %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    end();
}

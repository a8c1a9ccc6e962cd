/* seccomp_x86_64.c - system calls that only x86-64 has: the forms that newer calls replaced. */
#if defined(__x86_64__)

#include <sys/syscall.h>

#include "engine/seccomp.h"

const int seccomp_arch_allowed[] = {
    SYS_access,   SYS_alarm,        SYS_arch_prctl,   SYS_chmod,   SYS_chown,    SYS_creat,
    SYS_dup2,     SYS_epoll_create, SYS_epoll_wait,   SYS_eventfd, SYS_fork,     SYS_futimesat,
    SYS_getdents, SYS_getpgrp,      SYS_inotify_init, SYS_lchown,  SYS_link,     SYS_lstat,
    SYS_mkdir,    SYS_mknod,        SYS_open,         SYS_pause,   SYS_pipe,     SYS_poll,
    SYS_readlink, SYS_rename,       SYS_rmdir,        SYS_select,  SYS_signalfd, SYS_stat,
    SYS_symlink,  SYS_time,         SYS_unlink,       SYS_utime,   SYS_utimes,   SYS_vfork,
    -1,
};

const int seccomp_arch_refused[] = {
    SYS_ioperm, SYS_iopl, SYS_modify_ldt, SYS_uselib, SYS_ustat, SYS_sysfs, -1,
};

#endif

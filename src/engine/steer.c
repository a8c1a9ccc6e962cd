/* steer.c - the sk_lookup program, assembled here: no compiler and no library is needed for it at run time.
 *
 * See steer.h. bpf(2), BPF_PROG_TYPE_SK_LOOKUP (Linux 5.9). local_port is in host order, addresses are in
 * network order. The sockets are in a map of the program's own, so that one that is closed leaves an empty
 * place, which refuses.
 */
#include "engine/steer.h"

#include <arpa/inet.h>
#include <linux/bpf.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "e2b/guest_abi.h"
#include "engine/netns.h"

/* Where the sockets are bound: an address and a port that no server in a sandbox wants. Mapped: the kernel makes
 * a socket bound to an address of IPv6 one for IPv6 alone. */
#define GUARD_ADDRESS4 "127.255.255.254"
#define GUARD_ADDRESS6 "::ffff:" GUARD_ADDRESS4
#define GUARD_PORT_TCP 1
#define DNS_PORT 53
#define BACKLOG 1024

/* A key of the map that no socket is at: UDP that is refused. */
#define KEY_COUNTED 2

static long bpf(int cmd, union bpf_attr *attr)
{
    return syscall(SYS_bpf, cmd, attr, sizeof *attr);
}

/* --- the program -------------------------------------------------------------------------------- */

enum label { TO_ADDRESS, TO_V6, TO_STEER, TO_COUNT, TO_DROP, TO_PASS, LABELS };

#define CODE_MAX 80

struct program {
    struct bpf_insn code[CODE_MAX];
    int labels[LABELS];
    int n;
};

static struct bpf_insn *emit(struct program *p, uint8_t code, uint8_t dst, uint8_t src, int16_t off,
                             int32_t imm)
{
    struct bpf_insn *at = &p->code[p->n++];

    *at = (struct bpf_insn){ .code = code, .off = off, .imm = imm };
    at->dst_reg = dst & 15;
    at->src_reg = src & 15;
    return at;
}

static void load_word(struct program *p, uint8_t to, size_t field)
{
    (void)emit(p, BPF_LDX | BPF_MEM | BPF_W, to, BPF_REG_6, (int16_t)field, 0);
}

static void set_value(struct program *p, uint8_t to, int32_t value)
{
    (void)emit(p, BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, value);
}

static void copy(struct program *p, uint8_t to, uint8_t from)
{
    (void)emit(p, BPF_ALU64 | BPF_MOV | BPF_X, to, from, 0, 0);
}

static void call(struct program *p, int32_t function)
{
    (void)emit(p, BPF_JMP | BPF_CALL, 0, 0, 0, function);
}

/* On 32 bits, so that the sign of an address does not matter. The label is put into its place by
 * program_link. */
static void jump_if(struct program *p, uint8_t how, uint8_t reg, uint32_t value, enum label to)
{
    (void)emit(p, (uint8_t)(BPF_JMP32 | how | BPF_K), reg, 0, (int16_t)to, (int32_t)value);
}

static void jump(struct program *p, enum label to)
{
    (void)emit(p, BPF_JMP | BPF_JA, 0, 0, (int16_t)to, 0);
}

/* 64 bits: a pointer, or the start of a map's value. */
static void load_map(struct program *p, uint8_t to, uint8_t kind, int fd)
{
    (void)emit(p, BPF_LD | BPF_DW | BPF_IMM, to, kind, 0, fd);
    (void)emit(p, 0, 0, 0, 0, 0);
}

static void mark(struct program *p, enum label label)
{
    p->labels[label] = p->n;
}

static void program_link(struct program *p)
{
    for (int i = 0; i < p->n; i++) {
        uint8_t class = BPF_CLASS(p->code[i].code), op = BPF_OP(p->code[i].code);

        if ((class == BPF_JMP || class == BPF_JMP32) && op != BPF_CALL && op != BPF_EXIT)
            p->code[i].off = (int16_t)(p->labels[p->code[i].off] - i - 1);
    }
}

/* r7 = which socket. */
static void emit_protocol(struct program *p)
{
    load_word(p, BPF_REG_2, offsetof(struct bpf_sk_lookup, protocol));
    set_value(p, BPF_REG_7, STEER_TCP);
    jump_if(p, BPF_JEQ, BPF_REG_2, IPPROTO_TCP, TO_ADDRESS);
    jump_if(p, BPF_JNE, BPF_REG_2, IPPROTO_UDP, TO_DROP);
    set_value(p, BPF_REG_7, STEER_UDP);
    load_word(p, BPF_REG_2, offsetof(struct bpf_sk_lookup, local_port));
    jump_if(p, BPF_JEQ, BPF_REG_2, DNS_PORT, TO_ADDRESS);
    set_value(p, BPF_REG_7, KEY_COUNTED);
}

static void emit_addresses(struct program *p)
{
    size_t v6 = offsetof(struct bpf_sk_lookup, local_ip6);
    uint32_t own, guard;

    (void)inet_pton(AF_INET, NETNS_OWN_ADDRESS, &own);
    (void)inet_pton(AF_INET, GUARD_ADDRESS4, &guard);
    mark(p, TO_ADDRESS);
    load_word(p, BPF_REG_2, offsetof(struct bpf_sk_lookup, family));
    jump_if(p, BPF_JEQ, BPF_REG_2, AF_INET6, TO_V6);
    jump_if(p, BPF_JNE, BPF_REG_2, AF_INET, TO_DROP);
    load_word(p, BPF_REG_2, offsetof(struct bpf_sk_lookup, local_ip4));
    jump_if(p, BPF_JEQ, BPF_REG_2, guard, TO_DROP);
    jump_if(p, BPF_JEQ, BPF_REG_2, own, TO_PASS);
    (void)emit(p, BPF_ALU | BPF_AND | BPF_K, BPF_REG_2, 0, 0, (int32_t)htonl(0xff000000));
    jump_if(p, BPF_JEQ, BPF_REG_2, htonl(0x7f000000), TO_PASS);
    jump(p, TO_STEER);

    mark(p, TO_V6);
    for (size_t word = 0; word < 3; word++) {
        load_word(p, BPF_REG_2, v6 + word * sizeof(uint32_t));
        jump_if(p, BPF_JNE, BPF_REG_2, 0, TO_STEER);
    }
    load_word(p, BPF_REG_2, v6 + 3 * sizeof(uint32_t));
    jump_if(p, BPF_JEQ, BPF_REG_2, htonl(1), TO_PASS);
}

static void emit_steering(struct program *p, int sockets_fd, int count_fd)
{
    mark(p, TO_STEER);
    jump_if(p, BPF_JEQ, BPF_REG_7, KEY_COUNTED, TO_COUNT);
    (void)emit(p, BPF_STX | BPF_MEM | BPF_W, BPF_REG_10, BPF_REG_7, -4, 0);
    load_map(p, BPF_REG_1, BPF_PSEUDO_MAP_FD, sockets_fd);
    copy(p, BPF_REG_2, BPF_REG_10);
    (void)emit(p, BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_2, 0, 0, -4);
    call(p, BPF_FUNC_map_lookup_elem); /* takes a reference */
    (void)emit(p, BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_0, 0, TO_DROP, 0);
    copy(p, BPF_REG_8, BPF_REG_0);
    copy(p, BPF_REG_1, BPF_REG_6);
    copy(p, BPF_REG_2, BPF_REG_8);
    set_value(p, BPF_REG_3, BPF_SK_LOOKUP_F_NO_REUSEPORT);
    call(p, BPF_FUNC_sk_assign);
    copy(p, BPF_REG_9, BPF_REG_0);
    copy(p, BPF_REG_1, BPF_REG_8);
    call(p, BPF_FUNC_sk_release);
    jump_if(p, BPF_JEQ, BPF_REG_9, 0, TO_PASS);
    jump(p, TO_DROP);
    mark(p, TO_COUNT);
    load_map(p, BPF_REG_1, BPF_PSEUDO_MAP_VALUE, count_fd);
    set_value(p, BPF_REG_2, 1);
    (void)emit(p, BPF_STX | BPF_ATOMIC | BPF_DW, BPF_REG_1, BPF_REG_2, 0, BPF_ADD);
    mark(p, TO_DROP);
    set_value(p, BPF_REG_0, SK_DROP);
    (void)emit(p, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
    mark(p, TO_PASS);
    set_value(p, BPF_REG_0, SK_PASS);
    (void)emit(p, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

static int load_program(int sockets_fd, int count_fd, int *ret_fd, struct abx_err *err)
{
    struct program p = { 0 };
    char licence[] = "Apache-2.0";
    union bpf_attr attr;
    long fd;

    copy(&p, BPF_REG_6, BPF_REG_1);
    emit_protocol(&p);
    emit_addresses(&p);
    emit_steering(&p, sockets_fd, count_fd);
    program_link(&p);
    memset(&attr, 0, sizeof attr);
    attr.prog_type = BPF_PROG_TYPE_SK_LOOKUP;
    attr.expected_attach_type = BPF_SK_LOOKUP;
    attr.insns = (uintptr_t)p.code;
    attr.insn_cnt = (uint32_t)p.n;
    attr.license = (uintptr_t)licence;
    (void)snprintf(attr.prog_name, sizeof attr.prog_name, "abx_steer");
    fd = bpf(BPF_PROG_LOAD, &attr);
    if (fd < 0)
        return err_sys(err, errno, "load an sk_lookup program");
    *ret_fd = (int)fd;
    return 0;
}

/* --- maps, sockets, link ------------------------------------------------------------------------ */

static int make_map(enum bpf_map_type type, uint32_t entries, uint32_t flags, int *ret_fd,
                    struct abx_err *err)
{
    union bpf_attr attr;
    long fd;

    memset(&attr, 0, sizeof attr);
    attr.map_type = type;
    attr.key_size = sizeof(uint32_t);
    attr.value_size = sizeof(uint64_t);
    attr.max_entries = entries;
    attr.map_flags = flags;
    (void)snprintf(attr.map_name, sizeof attr.map_name, "abx_steer");
    fd = bpf(BPF_MAP_CREATE, &attr);
    if (fd < 0)
        return err_sys(err, errno, "make a BPF map");
    *ret_fd = (int)fd;
    return 0;
}

static int put_socket(int map_fd, uint32_t key, int fd, struct abx_err *err)
{
    uint64_t value = (uint64_t)fd;
    union bpf_attr attr;

    memset(&attr, 0, sizeof attr);
    attr.map_fd = (uint32_t)map_fd;
    attr.key = (uintptr_t)&key;
    attr.value = (uintptr_t)&value;
    return bpf(BPF_MAP_UPDATE_ELEM, &attr) < 0 ? err_sys(err, errno, "fill a BPF map") : 0;
}

static int attach(int prog_fd, int netns_fd, int *ret_fd, struct abx_err *err)
{
    union bpf_attr attr;
    long fd;

    memset(&attr, 0, sizeof attr);
    attr.link_create.prog_fd = (uint32_t)prog_fd;
    attr.link_create.target_fd = (uint32_t)netns_fd;
    attr.link_create.attach_type = BPF_SK_LOOKUP;
    fd = bpf(BPF_LINK_CREATE, &attr);
    if (fd < 0)
        return err_sys(err, errno, "attach an sk_lookup program");
    *ret_fd = (int)fd;
    return 0;
}

static bool set_option(int fd, int level, int name, int value)
{
    return setsockopt(fd, level, name, &value, sizeof value) == 0;
}

/* Reusable: accepted sockets sit on the port that was dialled, and a server in the sandbox that wants that
 * port has to get it. FREEBIND: answers come from addresses that are on no interface. */
static bool prepare_socket(int fd, bool is_v6, bool is_udp)
{
    bool ok = set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);

    if (is_v6)
        ok = ok && set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0) &&
             set_option(fd, IPPROTO_IPV6, IPV6_FREEBIND, 1);
    if (is_udp && is_v6)
        ok = ok && set_option(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
    else if (is_udp)
        ok = ok && set_option(fd, IPPROTO_IP, IP_PKTINFO, 1);
    return ok;
}

static int bind_guard(int fd, bool is_v6, uint16_t port, struct abx_err *err)
{
    struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
    struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_port = htons(port) };
    int r;

    (void)inet_pton(AF_INET6, GUARD_ADDRESS6, &a6.sin6_addr);
    (void)inet_pton(AF_INET, GUARD_ADDRESS4, &a4.sin_addr);
    r = is_v6 ? bind(fd, (const struct sockaddr *)&a6, sizeof a6)
              : bind(fd, (const struct sockaddr *)&a4, sizeof a4);
    return r < 0 ? err_sys(err, errno, "bind the socket that steering ends at") : 0;
}

static int open_socket(int netns_fd, bool is_udp, int *ret_fd, struct abx_err *err)
{
    _cleanup_(closep) int fd = -EBADF;
    struct abx_err why = { 0 };
    int type = is_udp ? SOCK_DGRAM : SOCK_STREAM;
    bool is_v6 = true;
    int r = netns_socket(netns_fd, AF_INET6, type, 0, &fd, &why);

    if (r < 0 && why.sys == EAFNOSUPPORT) {
        is_v6 = false;
        r = netns_socket(netns_fd, AF_INET, type, 0, &fd, &why);
    }
    if (r < 0) {
        if (err)
            *err = why;
        return r;
    }
    if (!prepare_socket(fd, is_v6, is_udp))
        return err_sys(err, errno, "options of the socket that steering ends at");
    r = bind_guard(fd, is_v6, is_udp ? DNS_PORT : GUARD_PORT_TCP, err);
    if (r < 0)
        return r;
    if (!is_udp && listen(fd, BACKLOG) < 0)
        return err_sys(err, errno, "listen where steering ends");
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* While nobody had the socket its name was free to take: such a sandbox tells nothing, which harms no one else. */
static int open_report(int netns_fd, int *ret_fd, struct abx_err *err)
{
    struct abx_err why = { 0 };
    int r = netns_bind_datagrams(netns_fd, GUEST_REPORT_NAME, ret_fd, &why);

    if (r == 0 || why.sys == EADDRINUSE)
        return 0;
    if (err)
        *err = why;
    return r;
}

static void close_all(int *fds)
{
    for (size_t i = 0; i < STEER_FDS; i++)
        fd_close(TAKE_FD(fds[i]));
}

int steer_open(int netns_fd, int ret_fds[STEER_FDS], struct abx_err *err)
{
    _cleanup_(closep) int sockets = -EBADF; /* both live on in the link */
    _cleanup_(closep) int program = -EBADF;
    int fds[STEER_FDS] = { -EBADF, -EBADF, -EBADF, -EBADF, -EBADF };
    int r = make_map(BPF_MAP_TYPE_SOCKMAP, 2, 0, &sockets, err);

    if (r == 0)
        r = make_map(BPF_MAP_TYPE_ARRAY, 1, BPF_F_MMAPABLE, &fds[STEER_COUNT], err);
    if (r == 0)
        r = load_program(sockets, fds[STEER_COUNT], &program, err);
    if (r == 0)
        r = open_socket(netns_fd, false, &fds[STEER_TCP], err);
    if (r == 0)
        r = open_socket(netns_fd, true, &fds[STEER_UDP], err);
    if (r == 0)
        r = put_socket(sockets, STEER_TCP, fds[STEER_TCP], err);
    if (r == 0)
        r = put_socket(sockets, STEER_UDP, fds[STEER_UDP], err);
    if (r == 0)
        r = attach(program, netns_fd, &fds[STEER_LINK], err);
    if (r == 0)
        r = open_report(netns_fd, &fds[STEER_REPORT], err);
    if (r < 0) {
        close_all(fds);
        return r;
    }
    memcpy(ret_fds, fds, sizeof fds);
    return 0;
}

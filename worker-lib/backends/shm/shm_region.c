/* SPDX-License-Identifier: MIT */
/*
 * Passes the file to all ranks. The first rank makes it and publishes its place in the
 * store: others open it as a descriptor of that process in /proc or, if that is not
 * permitted, request it from a socket of the first rank. A number in the file
 * distinguishes it from any other file. The socket's name is visible to all users of
 * the machine, so both sides check that the other belongs to the same user. What the
 * store says may be wrong, so a descriptor in /proc is opened only if its file belongs
 * to the same user: to open a device or a FIFO may have an effect.
 *
 * Each rank locks one byte of the file while it is alive: the kernel releases the lock
 * at any end of the process, even before its parent has noticed.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/proc.h"
#include "worker-lib/backends/shm/backend_shm.h"
#include "worker-lib/engine/failure_notice.h"

/* No rank can take pages away from the others. It must still grow, for crun_alloc. */
#define SEALS (F_SEAL_SHRINK | F_SEAL_SEAL)
#define MAGIC 0x32306d68736e7572u /* "runshm02" */
#define PAGE 4096u
#define CELL_BYTES 16384u
#define CELL_BYTES_MANY 4096u
#define MANY 64 /* ranks: the rings between them take many times as much */
#define SERVE_SPIN_US 2000
#define SERVE_POLL_MS 1
#define HEAR_MS 200 /* between checks of the store: a rank may fail first */

/* -- layout ------------------------------------------------------------------------ */

static size_t receive_file(size_t *used, size_t bytes)
{
    size_t at = *used;

    *used += (bytes + PAGE - 1) / PAGE * PAGE;
    return at;
}

struct shm_layout shm_layout_of(unsigned size)
{
    struct shm_layout l = { .cell_bytes = size > MANY ? CELL_BYTES_MANY : CELL_BYTES };
    size_t pairs = (size_t)size * size;

    receive_file(&l.bytes, sizeof(struct shm_head));
    l.seats = receive_file(&l.bytes, size * sizeof(struct shm_seat));
    l.cores = receive_file(&l.bytes, size * sizeof(uint32_t));
    l.small = receive_file(&l.bytes, size * 2 * (size_t)SHM_SMALL_BYTES);
    l.slots = receive_file(&l.bytes, size * 2 * (size_t)SHM_SLOT_BYTES);
    l.results = receive_file(&l.bytes, 2 * (size_t)SHM_SLOT_BYTES);
    l.rings = receive_file(&l.bytes, pairs * sizeof(struct shm_ring));
    l.cells = receive_file(&l.bytes, pairs * SHM_CELLS * l.cell_bytes);
    return l;
}

struct shm_head *shm_head(const struct shm *s)
{
    return (struct shm_head *)(void *)s->base;
}

struct shm_seat *shm_seat(const struct shm *s, unsigned place)
{
    return (struct shm_seat *)(void *)(s->base + s->at.seats) + place;
}

char *shm_small(const struct shm *s, unsigned place, unsigned parity)
{
    return s->base + s->at.small + (2 * (size_t)place + parity) * SHM_SMALL_BYTES;
}

char *shm_slot(const struct shm *s, unsigned place, unsigned parity)
{
    return s->base + s->at.slots + (2 * (size_t)place + parity) * SHM_SLOT_BYTES;
}

char *shm_result(const struct shm *s, unsigned parity)
{
    return s->base + s->at.results + (size_t)parity * SHM_SLOT_BYTES;
}

struct shm_ring *shm_ring(const struct shm *s, unsigned from, unsigned to)
{
    return (struct shm_ring *)(void *)(s->base + s->at.rings) +
           ((size_t)from * s->team.size + to);
}

char *shm_cell(const struct shm *s, unsigned from, unsigned to, uint32_t cell)
{
    size_t ring = (size_t)from * s->team.size + to;

    return s->base + s->at.cells +
           (ring * SHM_CELLS + cell % SHM_CELLS) * s->at.cell_bytes;
}

/* -- the lock ---------------------------------------------------------------------- */

static struct flock byte_of(unsigned place)
{
    return (struct flock){
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = place, .l_len = 1
    };
}

/* A process does not see its own locks: all its ranks live as long as the process. */
bool shm_is_alive(const struct shm *s, unsigned place)
{
    const struct shm_seat *seat = shm_seat(s, place), *own = shm_seat(s, s->team.rank);
    struct flock lock = byte_of(place);

    if (seat->pid == own->pid && seat->pids == own->pids)
        return true;
    return fcntl(s->fd, F_GETLK, &lock) < 0 || lock.l_type != F_UNLCK;
}

/* -- the file ---------------------------------------------------------------------- */

/* The first rank's description of the file in the store. */
struct notice {
    uint64_t nonce[2];
    int64_t pid;
    int64_t fd;
};

static crun_status fail_refused(struct err *e, const char *what)
{
    err_set_errno(e, errno, "shared memory: %s", what);
    return CRUN_SYSTEM;
}

static crun_status map_file(struct shm *s, struct err *e)
{
    void *base = mmap(NULL, s->at.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);

    if (base == MAP_FAILED)
        return fail_refused(e, "mmap");
    s->base = base;
    return CRUN_OK;
}

static crun_status make_file(struct shm *s, struct notice *n, struct err *e)
{
    crun_status status;

    s->fd = memfd_create("crun-worker", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (s->fd < 0 || ftruncate(s->fd, (off_t)s->at.bytes) < 0 ||
        fcntl(s->fd, F_ADD_SEALS, SEALS) < 0)
        return fail_refused(e, "memfd");
    if (getrandom(n->nonce, sizeof(n->nonce), 0) != sizeof(n->nonce))
        return fail_refused(e, "getrandom");
    status = map_file(s, e);
    if (status != CRUN_OK)
        return status;
    n->pid = getpid();
    n->fd = s->fd;
    memcpy(shm_head(s)->nonce, n->nonce, sizeof(n->nonce));
    shm_head(s)->size = s->team.size;
    shm_head(s)->magic = MAGIC;
    return CRUN_OK;
}

/* Whether it belongs to our user, and its size cannot shrink. */
static bool is_safe_file(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;

    return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &st) == 0 &&
           st.st_uid == geteuid();
}

static bool is_right_file(int fd, const struct notice *n, unsigned size)
{
    struct shm_head head;

    return is_safe_file(fd) &&
           pread(fd, &head, sizeof(head), 0) == (ssize_t)sizeof(head) &&
           head.magic == MAGIC && head.size == size &&
           memcmp(head.nonce, n->nonce, sizeof(n->nonce)) == 0;
}

/* An abstract name, which ends with the socket. */
static socklen_t socket_name(const struct notice *n, struct sockaddr_un *name)
{
    int length;

    memset(name, 0, sizeof(*name));
    name->sun_family = AF_UNIX;
    length = snprintf(name->sun_path + 1, sizeof(name->sun_path) - 1,
                      "crun-%016" PRIx64 "%016" PRIx64, n->nonce[0], n->nonce[1]);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static int listen_at(const struct notice *n)
{
    struct sockaddr_un name;
    socklen_t length = socket_name(n, &name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 && bind(fd, (const struct sockaddr *)&name, length) == 0 &&
        listen(fd, 128) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* A message of one byte that carries a descriptor. */
struct parcel {
    char byte;
    struct iovec iov;
    struct msghdr m;
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
};

static void wrap_error(struct parcel *p)
{
    memset(p, 0, sizeof(*p));
    p->iov = (struct iovec){ &p->byte, 1 };
    p->m = (struct msghdr){ .msg_iov = &p->iov,
                            .msg_iovlen = 1,
                            .msg_control = p->control.space,
                            .msg_controllen = sizeof(p->control.space) };
}

/* The user of the process that has connected, or that listens. False: unknown. */
static bool get_peer_user(int peer, uid_t *user)
{
    struct ucred cred;
    socklen_t size = sizeof(cred);

    if (getsockopt(peer, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0)
        return false;
    *user = cred.uid;
    return true;
}

/* Sends it to a process of our own user; the connection of any other is closed. */
static void send_file(int listener, int fd)
{
    struct parcel p;
    struct cmsghdr *c;
    uid_t user;
    int peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

    if (peer < 0)
        return;
    if (!get_peer_user(peer, &user) || user != geteuid()) {
        close(peer);
        return;
    }
    wrap_error(&p);
    c = CMSG_FIRSTHDR(&p.m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(fd));
    memcpy(CMSG_DATA(c), &fd, sizeof(fd));
    (void)!sendmsg(peer, &p.m, MSG_NOSIGNAL);
    close(peer);
}

/* Sets *user to the user that offers the file, if a process listens there. */
static int request_file(const struct notice *n, uint64_t deadline_ms, uid_t *user)
{
    struct sockaddr_un name;
    socklen_t length = socket_name(n, &name);
    uint64_t now = clock_ms();
    struct timeval timeout = { .tv_sec = 1 };
    struct parcel p;
    const struct cmsghdr *c;
    int fd = -1, peer = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (peer < 0)
        return -1;
    if (deadline_ms > now + 1000)
        timeout.tv_sec = (time_t)((deadline_ms - now) / 1000);
    setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    wrap_error(&p);
    if (connect(peer, (const struct sockaddr *)&name, length) == 0 &&
        get_peer_user(peer, user) && *user == geteuid() &&
        recvmsg(peer, &p.m, MSG_CMSG_CLOEXEC) == 1 &&
        (c = CMSG_FIRSTHDR(&p.m)) != NULL && c->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(c), sizeof(fd));
    close(peer);
    return fd;
}

/* The descriptor of the first rank in /proc, if it may be opened. */
static int open_in_proc(const struct notice *n)
{
    struct stat st;
    char path[64];

    if (n->pid <= 0 || n->fd < 0)
        return -1;
    snprintf(path, sizeof(path), "/proc/%" PRId64 "/fd/%" PRId64, n->pid, n->fd);
    if (stat(path, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid())
        return -1;
    return open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
}

static crun_status get_file(struct shm *s, const struct notice *n, uint64_t deadline_ms,
                            struct err *e)
{
    uid_t own = geteuid(), user = own;

    s->fd = open_in_proc(n);
    if (s->fd >= 0 && is_right_file(s->fd, n, s->team.size))
        return map_file(s, e);
    if (s->fd >= 0)
        close(s->fd);
    s->fd = request_file(n, deadline_ms, &user);
    if (s->fd >= 0 && is_right_file(s->fd, n, s->team.size))
        return map_file(s, e);
    if (user != own) {
        err_set(e,
                "the shared memory of rank %u (pid %" PRId64 ") is offered by user %u, "
                "and this rank is of user %u; CRUN_BACKEND=tcp does not need it",
                s->team.world_rank[0], n->pid, user, own);
        return CRUN_SYSTEM;
    }
    err_set(e,
            "rank %u (pid %" PRId64 ") should be on this node, but its shared memory "
            "cannot be reached from here; CRUN_BACKEND=tcp does not need it",
            s->team.world_rank[0], n->pid);
    return CRUN_SYSTEM;
}

/* -- joining ----------------------------------------------------------------------- */

/* Another living rank has this number: it belongs to another job with the same store,
 * or its launcher numbers ranks wrongly. */
static crun_status seat_is_taken(const struct shm *s, struct err *e)
{
    struct flock lock = byte_of(s->team.rank);
    int pid = fcntl(s->fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? lock.l_pid
                                                                          : 0;

    err_set(
        e,
        "there is another rank %u, process %d: every rank needs a number of its own, "
        "and every job a MASTER_PORT",
        s->team.world_rank[s->team.rank], pid);
    return CRUN_BAD_ENVIRONMENT;
}

static crun_status take_seat(struct shm *s, struct err *e)
{
    struct shm_seat *seat = shm_seat(s, s->team.rank);
    struct flock lock = byte_of(s->team.rank);

    if (fcntl(s->fd, F_SETLK, &lock) < 0)
        return errno == EAGAIN || errno == EACCES ? seat_is_taken(s, e)
                                                  : fail_refused(e, "a lock");
    seat->pid = getpid();
    seat->pids = proc_pid_namespace();
    if (sched_getaffinity(0, sizeof(seat->cpus), &seat->cpus) < 0)
        CPU_ZERO(&seat->cpus);
    atomic_store(&seat->state, SHM_JOINED);
    s->round = 1;
    shm_raise(&seat->turn[1].come, 1);
    return CRUN_OK;
}

static bool all_ranks_have_come(const struct shm *s)
{
    for (unsigned p = 0; p < s->team.size; p++)
        if (atomic_load(&shm_seat(s, p)->turn[1].come.value) == 0)
            return false;
    return true;
}

/* The first rank sends the file to every rank that requests it, until all have
 * joined. */
static void serve_file(struct shm *s, int listener, uint64_t deadline_ms)
{
    struct pollfd p = { .fd = listener, .events = POLLIN };
    uint64_t spin_until = clock_us() + SERVE_SPIN_US, hear_at = clock_ms() + HEAR_MS;
    struct err ignored;

    while (!all_ranks_have_come(s) && clock_ms() < deadline_ms &&
           shm_check_abort(s, &ignored) == CRUN_OK) {
        if (clock_us() < spin_until)
            sched_yield();
        else if (poll(&p, 1, SERVE_POLL_MS) > 0)
            send_file(listener, s->fd);
        if (clock_ms() < hear_at)
            continue;
        /* A missing rank may have left a notice: passes it on to the ranks that have
         * joined. */
        if (failure_notice_abort(s->team.board, s->team.aborted))
            s->backend.calls->abort(&s->backend);
        hear_at = clock_ms() + HEAR_MS;
    }
}

static crun_status gather_ranks(struct shm *s, uint64_t deadline_ms, struct err *e)
{
    uint64_t now = clock_ms();
    const struct op op = { .kind = OP_BARRIER,
                           .deadline_ms = deadline_ms,
                           .timeout_ms = deadline_ms > now ? deadline_ms - now : 0 };
    crun_status status = CRUN_OK;

    for (unsigned p = 0; p < s->team.size && status == CRUN_OK; p++)
        status = shm_await(s, SHM_COME, p, 1, &op, e);
    return status;
}

static crun_status create_region(struct shm *s, const char *key, uint64_t deadline_ms,
                                 struct err *e)
{
    struct notice n;
    int listener = -1;
    crun_status status = make_file(s, &n, e);

    if (status == CRUN_OK) {
        listener = listen_at(&n);
        status = store_client_set(s->team.store, key, &n, sizeof(n), deadline_ms, e);
    }
    if (status == CRUN_OK)
        status = take_seat(s, e);
    if (status == CRUN_OK)
        serve_file(s, listener, deadline_ms);
    if (listener >= 0)
        close(listener);
    return status;
}

static crun_status join_region(struct shm *s, const char *key, uint64_t deadline_ms,
                               struct err *e)
{
    struct abort_notice why;
    struct notice n;
    size_t size = sizeof(n);
    crun_status status = failure_notice_await_key(s->team.board, key, &n, &size,
                                                  deadline_ms, e);
    if (status == CRUN_OK && size != sizeof(n)) {
        err_set(e, "the store has no valid address of the shared memory of rank %u",
                s->team.world_rank[0]);
        status = CRUN_MISMATCH;
    }
    if (status == CRUN_OK)
        status = get_file(s, &n, deadline_ms, e);
    /* the first rank may have left because of a failure that a rank has reported */
    if (status != CRUN_OK && failure_notice_read(s->team.board, &why))
        return abort_notice_error(&why, e);
    return status == CRUN_OK ? take_seat(s, e) : status;
}

crun_status shm_region_open(struct shm *s, uint64_t deadline_ms, struct err *e)
{
    char key[600];
    crun_status status;

    s->at = shm_layout_of(s->team.size);
    s->end = s->at.bytes;
    s->crowded = true;
    snprintf(key, sizeof(key), "%sshm", s->team.prefix);
    if (s->team.rank == 0)
        status = create_region(s, key, deadline_ms, e);
    else
        status = join_region(s, key, deadline_ms, e);
    if (status == CRUN_OK)
        status = gather_ranks(s, deadline_ms, e);
    if (status == CRUN_OK && s->team.rank == 0 && s->team.is_group)
        (void)!store_client_delete(s->team.store, key, deadline_ms, e);
    if (status == CRUN_OK)
        shm_cores_share(s);
    return status;
}

void shm_region_close(struct shm *s)
{
    if (s->base) {
        atomic_store(&shm_seat(s, s->team.rank)->state, SHM_LEFT);
        shm_wake_all(s);
        munmap(s->base, s->at.bytes);
    }
    if (s->fd >= 0)
        close(s->fd);
}

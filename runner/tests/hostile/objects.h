/* The part of exhaust.c about descriptors and the kernel's objects behind them. */

/* Descriptors, and what hangs on them. */

static void descriptors(void) {
    more_descriptors();
    for (long n = 0;; n++)
        if (open("/dev/null", O_RDONLY) < 0) refused("open", n);
}

static void pipes(void) {
    more_descriptors();
    static char block[65536];
    for (long n = 0;; n++) {
        int ends[2];
        if (pipe2(ends, O_NONBLOCK)) refused("pipe2", n);
        fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
        while (write(ends[1], block, sizeof block) > 0) {}
    }
}

static void socket_pairs(void) {
    more_descriptors();
    static char block[65536];
    for (long n = 0;; n++) {
        int ends[2], big = 1 << 30;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends)) refused("socketpair", n);
        setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &big, sizeof big);
        setsockopt(ends[0], SOL_SOCKET, SO_SNDBUFFORCE, &big, sizeof big);
        while (write(ends[0], block, sizeof block) > 0) {}
    }
}

static void passed(void) {
    more_descriptors();
    int ends[2], held = open("/dev/null", O_RDONLY);
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends);
    for (long n = 0;; n++) {
        int inner[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, inner)) refused("socketpair", n);
        union { char room[CMSG_SPACE(sizeof(int) * 3)]; struct cmsghdr head; } control = {0};
        char byte = 0;
        struct iovec iov = {&byte, 1};
        struct msghdr message = {0, 0, &iov, 1, control.room, sizeof control.room, 0};
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(sizeof(int) * 3);
        int three[3] = {ends[0], ends[1], held};
        memcpy(CMSG_DATA(&control.head), three, sizeof three);
        if (sendmsg(inner[0], &message, 0) < 0) refused("sendmsg", n);
        close(ends[0]);
        close(ends[1]);
        memcpy(ends, inner, sizeof ends);
    }
}

static void connections(void) {
    more_descriptors();
    static char block[65536];
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {AF_INET, htons(7777), {htonl(INADDR_LOOPBACK)}, {0}};
    if (bind(listening, (void *)&at, sizeof at) || listen(listening, 4096)) refused("listen", 0);
    for (long n = 0;; n++) {
        int big = 1 << 30, one = socket(AF_INET, SOCK_STREAM, 0);
        if (one < 0) refused("socket", n);
        setsockopt(one, SOL_SOCKET, SO_SNDBUF, &big, sizeof big);
        if (connect(one, (void *)&at, sizeof at)) refused("connect", n);
        if (accept(listening, 0, 0) < 0) refused("accept", n);
        fcntl(one, F_SETFL, O_NONBLOCK);
        while (write(one, block, sizeof block) > 0) {}
    }
}

static void datagrams(void) {
    static char block[60000];
    int in = socket(AF_INET, SOCK_DGRAM, 0), big = 1 << 30;
    struct sockaddr_in at = {AF_INET, htons(7778), {htonl(INADDR_LOOPBACK)}, {0}};
    setsockopt(in, SOL_SOCKET, SO_RCVBUF, &big, sizeof big);
    bind(in, (void *)&at, sizeof at);
    for (long n = 0; n < 20000; n++)
        if (sendto(in, block, sizeof block, 0, (void *)&at, sizeof at) < 0) refused("sendto", n);
}

static void epolls(void) {
    more_descriptors();
    int all = epoll_create1(0);
    for (long n = 0;; n++) {
        int fd = n % 3 == 0 ? eventfd(1, 0) : n % 3 == 1 ? timerfd_create(CLOCK_MONOTONIC, 0) : epoll_create1(0);
        if (fd < 0) refused("eventfd", n);
        struct epoll_event event = {EPOLLIN, {.u64 = (unsigned long)n}};
        if (epoll_ctl(all, EPOLL_CTL_ADD, fd, &event)) refused("epoll_ctl", n);
        struct itimerspec soon = {{0, 1000000}, {0, 1000000}};
        if (n % 3 == 1) timerfd_settime(fd, 0, &soon, 0);
    }
}

static void watches(void) {
    int in = inotify_init1(IN_NONBLOCK);
    for (long n = 0; n < 300000; n++) {
        sprintf(name, "watched-%ld", n % 20000);
        close(open(name, O_CREAT | O_WRONLY, 0600));
        if (inotify_add_watch(in, name, IN_ALL_EVENTS) < 0) refused("inotify_add_watch", n);
    }
}

static void locks(void) {
    int fd = open("locked", O_RDWR | O_CREAT, 0600);
    for (long n = 0; n < 100000; n++) {
        struct flock lock = {F_WRLCK, SEEK_SET, n * 2, 1, 0};
        if (fcntl(fd, F_SETLK, &lock)) refused("fcntl", n);
    }
}

/* Many descriptions, each with locks of its own; some wait for what others have. */
static void many_locks(void) {
    more_descriptors();
    for (long n = 0; n < 20000; n++) {
        int fd = open("locked-by-many", O_RDWR | O_CREAT, 0600);
        if (fd < 0) refused("open", n);
        struct flock lock = {n % 50 ? F_RDLCK : F_WRLCK, SEEK_SET, n % 50 ? 1000 : n, 1, 0};
        if (fcntl(fd, F_OFD_SETLK, &lock)) refused("fcntl", n);
        if (flock(fd, LOCK_SH)) refused("flock", n);
        lock.l_type = F_WRLCK;
        fcntl(fd, F_OFD_GETLK, &lock);
    }
}

static void polled(void) {
    static struct pollfd all[20000];
    more_descriptors();
    long n = 0;
    for (; n < 20000; n++) {
        all[n].fd = eventfd(0, EFD_NONBLOCK);
        all[n].events = POLLIN;
        if (all[n].fd < 0) refused("eventfd", n);
    }
    for (long turn = 0; turn < 100000; turn++) {
        unsigned long one = 1;
        if (turn % 3) write(all[turn % n].fd, &one, 8);
        if (poll(all, n, turn % 3 ? -1 : 1) < 0) refused("poll", turn);
        if (turn % 3) read(all[turn % n].fd, &one, 8);
    }
}

static void terminals(void) {
    more_descriptors();
    static char block[4096];
    memset(block, 't', sizeof block);
    for (long n = 0;; n++) {
        int master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
        if (master < 0) refused("posix_openpt", n);
        grantpt(master);
        unlockpt(master);
        int slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_NONBLOCK);
        if (slave < 0) refused("open", n);
        while (write(slave, block, sizeof block) > 0) {}
        while (write(master, block, sizeof block) > 0) {}
    }
}

static int pass(int by, int *what, int count) {
    union { char room[CMSG_SPACE(sizeof(int) * 200)]; struct cmsghdr head; } control = {0};
    char byte = 0;
    struct iovec iov = {&byte, 1};
    struct msghdr message = {0, 0, &iov, 1, control.room, CMSG_SPACE(sizeof(int) * count), 0};
    control.head.cmsg_level = SOL_SOCKET;
    control.head.cmsg_type = SCM_RIGHTS;
    control.head.cmsg_len = CMSG_LEN(sizeof(int) * count);
    memcpy(CMSG_DATA(&control.head), what, sizeof(int) * count);
    return sendmsg(by, &message, MSG_DONTWAIT) < 0 ? -1 : 0;
}

/* Many descriptors in messages that nobody receives. */
static void in_flight(void) {
    more_descriptors();
    int what[200];
    for (int i = 0; i < 200; i++) what[i] = i % 2 ? eventfd(0, 0) : socket(AF_UNIX, SOCK_STREAM, 0);
    for (long n = 0;; n++) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends)) refused("socketpair", n);
        while (!pass(ends[0], what, 200)) {}
        if (errno != EAGAIN) refused("sendmsg", n);
        if (n % 5 == 0) { close(ends[0]); close(ends[1]); }
    }
}

/* Sockets that only messages of each other hold. */
static void cycles(void) {
    for (long n = 0; n < 100000; n++) {
        int one[2], two[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, one) || socketpair(AF_UNIX, SOCK_STREAM, 0, two)) refused("socketpair", n);
        if (pass(one[0], two, 2) || pass(two[0], one, 2)) refused("sendmsg", n);
        close(one[0]);
        close(one[1]);
        close(two[0]);
        close(two[1]);
    }
}

/* Messages whose senders are gone. */
static void abandoned(void) {
    more_descriptors();
    static char block[65536];
    for (long n = 0;; n++) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends)) refused("socketpair", n);
        while (write(ends[0], block, sizeof block) > 0) {}
        close(ends[0]);
    }
}

/* Connections whose queues are full of single bytes. */
static void crumbs(void) {
    more_descriptors();
    int listening = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in at = {AF_INET, htons(7779), {htonl(INADDR_LOOPBACK)}, {0}};
    if (bind(listening, (void *)&at, sizeof at) || listen(listening, 4096)) refused("listen", 0);
    for (long n = 0;; n++) {
        int one = socket(AF_INET, SOCK_STREAM, 0);
        if (one < 0) refused("socket", n);
        setsockopt(one, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (connect(one, (void *)&at, sizeof at)) refused("connect", n);
        if (accept(listening, 0, 0) < 0) refused("accept", n);
        fcntl(one, F_SETFL, O_NONBLOCK);
        for (int i = 0; i < 20000 && write(one, "x", 1) > 0; i++) if (i % 50 == 0) usleep(100);
    }
}

/* Names without contents, in memory and on the disk. */
static void names(const char *dir) {
    if (chdir(dir)) refused("chdir", 0);
    for (long n = 0;; n++) {
        memset(name, 'n', 200);
        sprintf(name + 200, "-%ld", n);
        int fd = open(name, O_WRONLY | O_CREAT, 0600);
        if (fd < 0) refused("open", n);
        close(fd);
        fsetxattr(fd, "user.x", name, 200, 0);
    }
}

static void shm_names(void) { names("/dev/shm"); }
static void disk_names(void) { names("."); }

static void shm_attributes(void) {
    if (chdir("/dev/shm")) refused("chdir", 0);
    attributes();
}

/* Many tasks wait for the same thing, again and again. */
static int common_event;
static void *waits_too(void *_) {
    for (;;) { struct pollfd one = {common_event, POLLIN, 0}; poll(&one, 1, -1); sched_yield(); }
    return _;
}
static void herd(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    common_event = eventfd(0, EFD_NONBLOCK);
    long n = 0;
    for (pthread_t thread; n < 3000 && !pthread_create(&thread, &attributes, waits_too, 0); n++) {}
    for (unsigned long one = 1;;) { write(common_event, &one, 8); usleep(10); read(common_event, &one, 8); usleep(10); }
}

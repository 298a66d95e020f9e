use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::table::nr;
use bloodhound_vfs::Cred;

use crate::credentials::Credentials;
use crate::testing::Bench;

#[test]
fn root_of_a_machine_sets_parameters() {
    let mut b = Bench::new();
    let hostname = "/proc/sys/kernel/hostname";
    assert_eq!(b.with_path(nr::access, hostname, &[c::W_OK]), Err(Errno::EROFS));
    b.node.task_mut(b.tid).credentials = Credentials::new(Cred::user(0, 0), crate::caps::OF_A_MACHINE);
    assert_eq!(b.with_path(nr::access, hostname, &[c::W_OK]), Ok(0));
    assert_eq!(b.with_path(nr::access, "/sys/block", &[c::W_OK]), Err(Errno::EROFS));
    for (name, written, told) in [
        ("fs/pipe-max-size", "65535", Ok("65536\n")),
        ("fs/pipe-max-size", "1", Ok("4096\n")),
        ("fs/pipe-max-size", "2147483649", Err(Errno::EINVAL)),
        ("net/ipv4/ping_group_range", "5 9", Ok("5\t9\n")),
        ("net/ipv4/ping_group_range", "2 1", Ok("1\t0\n")),
        ("net/ipv4/ping_group_range", "x", Err(Errno::EINVAL)),
        ("net/ipv4/ping_group_range", "4", Ok("1\t0\n")),
        ("kernel/panic", "-1", Ok("-1\n")),
        ("kernel/printk", "", Err(Errno::EINVAL)),
        ("kernel/pid_max", "300", Err(Errno::EINVAL)),
        ("kernel/pid_max", "400", Ok("400\n")),
        ("kernel/sched_rr_timeslice_ms", "20", Ok("20\n")),
        ("kernel/sched_rr_timeslice_ms", "-1", Ok("100\n")),
        ("kernel/printk", "7 4", Ok("7\t4\t1\t7\n")),
        ("vm/swappiness", "201", Err(Errno::EINVAL)),
        ("vm/swappiness", "10", Ok("10\n")),
        ("vm/overcommit_memory", "2", Err(Errno::EINVAL)),
        ("vm/overcommit_memory", "0", Ok("0\n")),
    ] {
        let path = format!("/proc/sys/{name}");
        let fd = b.open(&path, c::O_WRONLY).unwrap();
        let wrote = b.write(fd, written.as_bytes());
        assert_eq!(wrote, told.map(|_| written.len() as u64), "{name} {written}");
        if let Ok(told) = told {
            assert_eq!(b.content(&path).unwrap(), told, "{name}");
        }
        b.call(nr::close, &[fd]).unwrap();
    }
    // What a container has from the beginning is looked at as what is written.
    for (name, value, fits) in [
        ("kernel/pid_max", "0", false),
        ("fs/pipe-max-size", "many", false),
        ("fs/pipe-max-size", "0", true),
        ("net/core/somaxconn", "128", true),
        ("net/ipv4/tcp_keepalive_time", "60", true),
    ] {
        assert_eq!(crate::procfs::is_value(name, value), fits, "{name} {value}");
    }
    // Numbers of processes go on from the beginning, and pipes of others than root are small.
    b.node.next_numbers[0] = 399;
    assert_eq!([b.fork().0, b.fork().0], [399, 300]);
    let user = b.fork();
    b.node.task_mut(user).credentials = Credentials::new(Cred::user(1000, 1000), 0);
    assert_eq!(b.call(nr::socket, &[c::AF_INET, c::SOCK_DGRAM, c::IPPROTO_ICMP]), Err(Errno::EACCES));
    let at = b.room(8);
    for (tid, size) in [(user, 4096), (b.tid, 65536)] {
        assert_eq!(b.call_as(tid, nr::pipe, &[at]), Ok(0));
        let fd = b.object::<[i32; 2]>(tid, at)[0] as u64;
        assert_eq!(b.call_as(tid, nr::fcntl, &[fd, c::F_GETPIPE_SZ, 0]), Ok(size));
    }
}

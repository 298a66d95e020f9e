//! All sources of a multicast group at once: IP_MSFILTER and MCAST_MSFILTER (RFC 3678, `struct ip_msfilter` and `struct group_filter`).

use std::net::{IpAddr, Ipv6Addr};

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_net::{SocketId, Stack};

use crate::ctx::*;
use crate::socket::{Address, OPTMEM_MAX, inet_bytes};
use crate::wait::SysResult;

const IP_MSFILTER: u64 = 41;
const MCAST_MSFILTER: u64 = 48;
/// MCAST_EXCLUDE and MCAST_INCLUDE.
const EXCLUDE: u32 = 0;
const INCLUDE: u32 = 1;
/// IP_MSFILTER_SIZE(0), GROUP_FILTER_SIZE(0), and what each source adds.
const IP_SIZES: [usize; 2] = [16, 4];
const SIZES: [usize; 2] = [144, 128];

/// Whether the option is one of those here.
pub(super) fn is_filter(level: u64, name: u64) -> bool {
    match level {
        c::IPPROTO_IP => matches!(name, IP_MSFILTER | MCAST_MSFILTER),
        c::IPPROTO_IPV6 => name == MCAST_MSFILTER,
        _ => false,
    }
}

/// A filter as a program writes it, without its sources.
struct Head {
    group: IpAddr,
    /// Which interface: its number, or 0.
    index: u32,
    /// The same by its address.
    address: Option<IpAddr>,
    mode: u32,
    /// How many sources there are, or room for.
    count: u32,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn v4(bytes: &[u8], at: usize) -> IpAddr {
    IpAddr::from(word(bytes, at).to_ne_bytes())
}

/// The address in a `struct sockaddr_storage`; `wrong` is the error for one of IPv4 of another family. That is not looked at of IPv6
/// (ip6_mc_msfilter).
fn storage(bytes: &[u8], at: usize, v6: bool, wrong: Errno) -> Result<IpAddr, Errno> {
    let address = Address::new(bytes.get(at..at + 28).unwrap_or_default().to_vec());
    if v6 {
        let ip: [u8; 16] = bytes.get(at + 8..at + 24).and_then(|b| b.try_into().ok()).ok_or(wrong)?;
        return Ok(Ipv6Addr::from(ip).into());
    }
    address.to_inet(false).map(|address| address.ip()).map_err(|_| wrong)
}

/// The sizes of the option's structure.
fn sizes(name: u64) -> [usize; 2] {
    if name == IP_MSFILTER { IP_SIZES } else { SIZES }
}

fn head(bytes: &[u8], (level, name): (u64, u64), wrong: Errno) -> Result<Head, Errno> {
    if name == IP_MSFILTER {
        let address = Some(v4(bytes, 4)).filter(|address| !address.is_unspecified());
        let (mode, count) = (word(bytes, 8), word(bytes, 12));
        return Ok(Head { group: v4(bytes, 0), index: 0, address, mode, count });
    }
    let group = storage(bytes, 8, level == c::IPPROTO_IPV6, wrong)?;
    let (mode, count) = (word(bytes, 136), word(bytes, 140));
    Ok(Head { group, index: word(bytes, 0), address: None, mode, count })
}

impl Ctx<'_> {
    /// setsockopt(2). ENOBUFS for too many sources; EINVAL for what is no group or no way to filter, and who is no member; ENODEV.
    pub(super) fn set_group_filter(
        &mut self,
        id: SocketId,
        (level, name): (u64, u64),
        value: Ptr,
        len: u32,
    ) -> SysResult<()> {
        let [least, each] = sizes(name);
        if (len as usize) < least {
            return err(Errno::EINVAL);
        }
        if len > OPTMEM_MAX {
            return err(Errno::ENOBUFS);
        }
        let mut bytes = vec![0; len as usize];
        self.read_bytes(value.0, &mut bytes)?;
        let v6 = level == c::IPPROTO_IPV6;
        let count = word(&bytes, least - 4) as usize;
        if count > Stack::most_sources(v6) {
            return err(Errno::ENOBUFS);
        }
        if least + each * count > bytes.len() {
            return err(Errno::EINVAL);
        }
        let Head { group, index, address, mode, .. } = head(&bytes, (level, name), Errno::EADDRNOTAVAIL)?;
        let source = |at| match name {
            IP_MSFILTER => Ok(v4(&bytes, at)),
            _ => storage(&bytes, at, v6, Errno::EADDRNOTAVAIL),
        };
        let sources = (0..count).map(|nth| source(least + each * nth));
        let sources: Vec<IpAddr> = sources.collect::<Result<_, _>>()?;
        if !group.is_multicast() || mode != INCLUDE && mode != EXCLUDE {
            return err(Errno::EINVAL);
        }
        let index = match address {
            Some(address) => self.interface_with(id, address).ok_or(Errno::ENODEV)?,
            None => index,
        };
        let device = self.group_device(id, group, index)?;
        // "pmc->ifindex != gsf->gf_interface" (ip6_mc_msfilter), where 0 is that of no member, unlike to who leaves.
        let interface = if v6 { index } else { device };
        let stack = self.node.net.of_mut(id);
        if mode == INCLUDE && sources.is_empty() {
            // "(INCLUDE, empty) == LEAVE_GROUP".
            return Ok(stack.leave_group(id, group, interface)?);
        }
        Ok(stack.set_filter(id, (group, interface), mode == INCLUDE, sources)?)
    }

    /// getsockopt(2): as many sources as the caller says that there is room for, whatever the length of the option says, and how many there are.
    pub(super) fn get_group_filter(
        &mut self,
        id: SocketId,
        (level, name): (u64, u64),
        (value, room): (Ptr, usize),
        len: Ptr,
    ) -> SysResult {
        let [least, each] = sizes(name);
        if room < least {
            return err(Errno::EINVAL);
        }
        let mut bytes = vec![0; least];
        self.read_bytes(value.0, &mut bytes)?;
        let v6 = level == c::IPPROTO_IPV6;
        let family = u64::from(u16::from_ne_bytes([bytes[8], bytes[9]]));
        if v6 && family != c::AF_INET6 {
            return err(Errno::EADDRNOTAVAIL);
        }
        let Head { group, index, address, count, .. } = head(&bytes, (level, name), Errno::EINVAL)?;
        if !group.is_multicast() {
            return err(Errno::EINVAL);
        }
        let interface = match (name, address) {
            (IP_MSFILTER, Some(address)) => self.interface_with(id, address).ok_or(Errno::ENODEV)?,
            (IP_MSFILTER, None) => self.group_device(id, group, 0)?,
            _ => index,
        };
        let (include, sources) = self.node.net.of(id).filter(id, group, interface)?;
        bytes[least - 8..least - 4].copy_from_slice(&u32::from(include).to_ne_bytes());
        bytes[least - 4..].copy_from_slice(&(sources.len() as u32).to_ne_bytes());
        for source in sources.iter().take(count as usize) {
            let end = bytes.len() + each;
            match source {
                IpAddr::V4(ip) if name == IP_MSFILTER => bytes.extend(ip.octets()),
                ip => bytes.extend(inet_bytes((*ip, 0).into())),
            }
            bytes.resize(end, 0);
        }
        self.write_obj(len, &(bytes.len() as i32))?;
        self.write_bytes(value.0, &bytes)?;
        Ok(0)
    }
}

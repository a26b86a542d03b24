//! The same traffic in other captures: whatever the network, the capturing machine and the file do to it, a
//! replay raises no alarm, and compares as much.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::dry_manager::{honest, play_dry};
use super::*;
use crate::capture::written::{Link, Pcap, PcapNg, Record, Written, gzip, records, segments_of};
use crate::recorded::{conversations_in, scenario};
use crate::setup::RecordedSetup;

/// A way to change segments or the file of them.
type Variant = fn(Vec<Written>) -> Vec<u8>;

/// A plain file.
fn plain(segments: &[Written]) -> Vec<u8> {
    Pcap::of(Link::Ethernet).write(&records(segments, Link::Ethernet))
}

/// In the order of time; those of one time as they are.
fn in_order(mut segments: Vec<Written>) -> Vec<u8> {
    segments.sort_by_key(|segment| segment.at_us);
    plain(&segments)
}

fn on(link: Link, segments: &[Written]) -> Vec<u8> {
    Pcap::of(link).write(&records(segments, link))
}

/// Adds segments after each one, in the order of time.
fn with<I>(segments: Vec<Written>, more: impl Fn(&Written) -> I) -> Vec<u8>
where
    I: IntoIterator<Item = Written>,
{
    let more = |segment: &Written| [segment.clone()].into_iter().chain(more(segment));
    in_order(segments.iter().flat_map(more).collect())
}

/// The same segment again, so many microseconds later.
fn later(segment: &Written, us: u64) -> Written {
    Written { at_us: segment.at_us + us, ..segment.clone() }
}

/// Each segment's data in pieces of so many bytes.
fn split(segments: Vec<Written>, bytes: usize) -> Vec<Written> {
    let pieces = |segment: Written| {
        let count = segment.data.len().div_ceil(bytes).max(1);
        let piece = move |place: usize| {
            let from = place * bytes;
            let data = segment.data[from..segment.data.len().min(from + bytes)].to_vec();
            let sequence = segment.sequence.wrapping_add(from as u32);
            let fin = segment.fin && place + 1 == count;
            Written { sequence, fin, data, ..segment.clone() }
        };
        (0..count).map(piece)
    };
    segments.into_iter().flat_map(pieces).collect()
}

/// Segments of one direction that follow one another as one.
fn joined(segments: Vec<Written>) -> Vec<Written> {
    let mut all: Vec<Written> = Vec::new();
    for segment in segments {
        let same_way = |other: &&mut Written| (other.from, other.to) == (segment.from, segment.to);
        let last = all.iter_mut().rev().find(|other| {
            (other.from, other.to) == (segment.from, segment.to)
                || (other.from, other.to) == (segment.to, segment.from)
        });
        match last.filter(same_way) {
            Some(last)
                if !last.data.is_empty()
                    && !segment.data.is_empty()
                    && last.data.len() < 20_000
                    && segment.sequence == last.sequence.wrapping_add(last.data.len() as u32) =>
            {
                last.data.extend(&segment.data);
                (last.at_us, last.fin) = (segment.at_us, segment.fin);
            }
            _ => all.push(segment),
        }
    }
    all.sort_by_key(|segment| segment.at_us);
    all
}

/// Each two data segments of one direction that follow one another, the second one first.
fn reordered(mut segments: Vec<Written>) -> Vec<Written> {
    for place in 1..segments.len() {
        let (one, other) = (segments[place - 1].clone(), segments[place].clone());
        let follows = (one.from, one.to) == (other.from, other.to)
            && !one.data.is_empty()
            && !other.data.is_empty();
        if follows && place % 2 == 0 {
            segments[place - 1] = Written { at_us: one.at_us, ..other.clone() };
            segments[place] = Written { at_us: other.at_us, ..one };
        }
    }
    segments
}

/// The same with other addresses.
fn moved(segments: Vec<Written>, address: impl Fn(SocketAddr) -> SocketAddr) -> Vec<Written> {
    let moved = |segment: Written| Written {
        from: address(segment.from),
        to: address(segment.to),
        ..segment
    };
    segments.into_iter().map(moved).collect()
}

/// Sequence numbers of each direction that pass 2^32 within the connection.
fn wrapping(segments: Vec<Written>) -> Vec<Written> {
    let mut shifts: BTreeMap<(SocketAddr, SocketAddr), u32> = BTreeMap::new();
    for segment in &segments {
        let shift = 0_u32.wrapping_sub(20).wrapping_sub(segment.sequence);
        shifts.entry((segment.from, segment.to)).or_insert(shift);
    }
    let shifted = |segment: Written| {
        let shift = |from, to| shifts.get(&(from, to)).copied().unwrap_or(0);
        let other = shift(segment.to, segment.from);
        Written {
            sequence: segment.sequence.wrapping_add(shift(segment.from, segment.to)),
            acknowledged: segment.acknowledged.map(|number| number.wrapping_add(other)),
            ..segment
        }
    };
    segments.iter().cloned().map(shifted).collect()
}

/// A connection of its own with these data, between others, at a time.
fn connection(at_us: u64, port: u16, server: SocketAddr, data: &[[&str; 2]]) -> Vec<Written> {
    let client = SocketAddr::new(server.ip(), port);
    let mut all = Vec::new();
    let (mut next, mut acknowledged) = ([1_000_u32, 9_000], None);
    let mut push = |side: usize, syn: bool, fin: bool, text: &str| {
        let (from, to) = if side == 0 { (client, server) } else { (server, client) };
        let sequence = next[side];
        let data = text.as_bytes().to_vec();
        next[side] = sequence.wrapping_add(data.len() as u32 + u32::from(syn || fin));
        let at_us = at_us + all.len() as u64 * 10;
        let segment =
            Written { at_us, from, to, sequence, acknowledged, syn, fin, reset: false, data };
        acknowledged = Some(next[side]);
        all.push(segment);
    };
    push(0, true, false, "");
    push(1, true, false, "");
    for [call, answer] in data {
        push(0, false, false, call);
        push(1, false, false, answer);
    }
    push(0, false, true, "");
    push(1, false, true, "");
    all
}

/// Packets with other frames around them.
fn framed(segments: &[Written], change: impl Fn(usize, Vec<u8>) -> Vec<u8>) -> Vec<u8> {
    let records = records(segments, Link::Ethernet).into_iter().enumerate();
    let change =
        |(place, record): (usize, Record)| Record::new(record.at_us, change(place, record.bytes));
    Pcap::of(Link::Ethernet).write(&records.map(change).collect::<Vec<_>>())
}

/// The place of the first segment after the longest silence.
fn after_silence(segments: &[Written]) -> usize {
    let silence = |place: &usize| segments[*place].at_us - segments[*place - 1].at_us;
    (1..segments.len()).max_by_key(silence).unwrap()
}

/// A clock that shows other times from a place on.
fn clock(mut segments: Vec<Written>, place: usize, by_us: i64) -> Vec<Written> {
    for segment in &mut segments[place..] {
        segment.at_us = segment.at_us.checked_add_signed(by_us).unwrap();
    }
    segments
}

/// On several interfaces of different kinds, in turns.
fn interfaces(segments: &[Written], of: &PcapNg, links: &[Link]) -> Vec<u8> {
    let record = |(place, segment): (usize, &Written)| {
        let interface = place % links.len();
        let bytes = links[interface].packet(&segment.ip());
        Record { interface: interface as u32, ..Record::new(segment.at_us, bytes) }
    };
    let records: Vec<Record> = segments.iter().enumerate().map(record).collect();
    PcapNg { links: links.iter().map(|link| link.number()).collect(), ..of.clone() }.write(&records)
}

const HOUR_US: i64 = 3_600_000_000;

/// Those of which a replay compares exactly as much as of the file itself.
const SAME: [(&str, Variant); 41] = [
    ("as it is", |all| plain(&all)),
    ("without a link layer", |all| on(Link::Raw, &all)),
    ("a VLAN tag", |all| on(Link::Vlan, &all)),
    ("two VLAN tags", |all| on(Link::TwoVlans, &all)),
    ("all interfaces of Linux", |all| on(Link::Cooked, &all)),
    ("all interfaces of Linux, second form", |all| on(Link::CookedAgain, &all)),
    ("the loopback device of a BSD", |all| on(Link::Null, &all)),
    ("IPv6", |all| {
        let v6 = |at: SocketAddr| SocketAddr::new(Ipv6Addr::LOCALHOST.into(), at.port());
        plain(&moved(all, v6))
    }),
    ("IPv6 with a VLAN tag", |all| {
        let v6 = |at: SocketAddr| SocketAddr::new("fd00::7".parse().unwrap(), at.port());
        on(Link::Vlan, &moved(all, v6))
    }),
    ("other addresses", |all| {
        plain(&moved(all, |at| SocketAddr::new("10.9.8.7".parse().unwrap(), at.port())))
    }),
    ("clients behind address translation", |all| {
        let shifted = |at: SocketAddr| match at.port() {
            high @ 60_000.. => SocketAddr::new(IpAddr::from([10, 0, 0, 9]), high),
            _ => SocketAddr::new(IpAddr::from([10, 0, 0, 8]), at.port()),
        };
        plain(&moved(all, shifted))
    }),
    ("big-endian", |all| {
        Pcap { big_endian: true, ..Pcap::of(Link::Ethernet) }.write(&records(&all, Link::Ethernet))
    }),
    ("nanoseconds", |all| {
        Pcap { nanoseconds: true, ..Pcap::of(Link::Ethernet) }.write(&records(&all, Link::Ethernet))
    }),
    ("pcapng", |all| PcapNg::of(Link::Raw).write(&records(&all, Link::Raw))),
    ("pcapng with comments, names and statistics", |all| {
        PcapNg { comments: true, ..PcapNg::of(Link::Raw) }.write(&records(&all, Link::Raw))
    }),
    ("pcapng of three kinds of interfaces", |all| {
        interfaces(&all, &PcapNg::of(Link::Raw), &[Link::Raw, Link::Ethernet, Link::Cooked])
    }),
    ("pcapng of many sections", |all| {
        PcapNg { section: 17, comments: true, ..PcapNg::of(Link::Raw) }
            .write(&records(&all, Link::Raw))
    }),
    ("pcapng with a clock of powers of two", |all| {
        PcapNg { resolution: 0x80 | 30, ..PcapNg::of(Link::Raw) }.write(&records(&all, Link::Raw))
    }),
    ("pcapng with a clock of its own beginning", |all| {
        let ng = PcapNg { offset_s: 1_700_000_000, resolution: 6, ..PcapNg::of(Link::Raw) };
        ng.write(&records(&all, Link::Raw))
    }),
    ("compressed", |all| gzip(&plain(&all), usize::MAX)),
    ("compressed in parts", |all| gzip(&plain(&all), 5_000)),
    ("each packet twice, as of two interfaces", |all| with(all, |segment| [later(segment, 1)])),
    ("data sent again after 200 ms", |all| {
        with(all, |segment| (!segment.data.is_empty()).then(|| later(segment, 200_000)))
    }),
    ("overtaken segments", |all| plain(&reordered(all))),
    ("overtaken pieces", |all| plain(&reordered(split(all, 40)))),
    ("segments of 7 bytes", |all| plain(&split(all, 7))),
    ("segments of 1 byte", |all| plain(&split(all, 1))),
    ("joined segments", |all| plain(&joined(all))),
    ("packets that stand behind later ones", |mut all| {
        all.chunks_mut(5).for_each(<[Written]>::reverse);
        plain(&all)
    }),
    ("keep-alives", |all| {
        let probe = |segment: &Written| {
            let next = segment.sequence.wrapping_add(segment.data.len() as u32);
            let probe = Written { sequence: next.wrapping_sub(1), ..later(segment, 40_000) };
            let is_open = !segment.data.is_empty() && !segment.fin;
            let empty = Written { data: vec![], ..probe.clone() };
            let of_a_byte = Written { at_us: probe.at_us + 5, data: vec![0], ..probe };
            if is_open { vec![empty, of_a_byte] } else { vec![] }
        };
        with(all, probe)
    }),
    ("more acknowledgements", |all| {
        let empty = |segment: &Written| Written { data: vec![], ..later(segment, 3) };
        let is_plain = |segment: &Written| !segment.syn && !segment.fin && !segment.reset;
        with(all, |segment| if is_plain(segment) { vec![empty(segment); 3] } else { vec![] })
    }),
    ("ends sent again, and resets after them", |all| {
        with(all, |segment| segment.fin.then(|| later(segment, 2)))
    }),
    ("sequence numbers that begin again", |all| plain(&wrapping(all))),
    ("connections to other services", |all| {
        let at = all[all.len() / 2].at_us;
        let server: SocketAddr = "127.0.0.1:80".parse().unwrap();
        let of_http =
            connection(at, 50_123, server, &[["GET / HTTP/1.0\r\n\r\n", "HTTP/1.0 200\r\n"]]);
        in_order([all, of_http].concat())
    }),
    ("packets of other protocols", |all| {
        let mut others = Vec::new();
        for (place, record) in records(&all, Link::Ethernet).into_iter().enumerate() {
            let mut other = record.bytes.clone();
            match place % 3 {
                // ARP, UDP, and a type that is not known.
                0 => other[12..14].copy_from_slice(&[8, 6]),
                1 => other[23] = 17,
                _ => other[12..14].copy_from_slice(&[0x88, 0xb5]),
            }
            others.extend([Record::new(record.at_us, other), record]);
        }
        Pcap::of(Link::Ethernet).write(&others)
    }),
    ("padding of short frames", |all| {
        framed(&all, |_, mut frame| {
            frame.resize(frame.len().max(60), 0);
            frame
        })
    }),
    ("check sequences of frames", |all| {
        framed(&all, |place, frame| [frame, (place as u32).to_be_bytes().to_vec()].concat())
    }),
    ("a snap length that cuts only padding", |all| {
        let padded = |mut record: Record| {
            record.sent += 18;
            record
        };
        let records: Vec<Record> = records(&all, Link::Ethernet).into_iter().map(padded).collect();
        Pcap::of(Link::Ethernet).write(&records)
    }),
    ("a clock that is set back by an hour", |all| {
        let place = all.len() / 2;
        plain(&clock(all, place, -HOUR_US))
    }),
    ("a clock that is set back by 3 s three times", |all| {
        let quarter = all.len() / 4;
        let set_back = |all, part| clock(all, part * quarter, -3_000_000);
        plain(&(1..4).fold(all, set_back))
    }),
    ("a clock that jumps ahead by 0.3 s in a silence", |all| {
        let place = after_silence(&all);
        plain(&clock(all, place, 300_000))
    }),
];

/// Those that hold other traffic: less of it, or more.
const OTHER: [(&str, Variant); 8] = [
    ("begun after the refused connections", |all| {
        let accepted = all.iter().position(|segment| segment.syn && segment.acknowledged.is_some());
        plain(&all[accepted.unwrap() - 1..])
    }),
    ("begun after the first packet", |all| plain(&all[1..])),
    ("begun in the middle of a connection", |all| plain(&all[all.len() / 2..])),
    ("begun late", |all| plain(&all[all.len() * 4 / 5..])),
    ("ended in the middle", |all| plain(&all[..all.len() / 2])),
    ("ended early", |all| plain(&all[..all.len() * 4 / 5])),
    ("ended within a packet", |all| {
        let mut file = plain(&all);
        file.truncate(file.len() - 9);
        file
    }),
    ("checks of the port between", |mut all| {
        let accepted = all.iter().find(|segment| segment.syn && segment.acknowledged.is_some());
        let &Written { at_us, from: server, .. } = accepted.unwrap();
        for (place, number) in (0..all.len()).step_by(60).zip(1_000_u16..) {
            if all[place].at_us > at_us {
                all.extend(connection(all[place].at_us + 3, number, server, &[]));
            }
        }
        in_order(all)
    }),
];

/// The report of a replay of this capture, made with the configuration of a scenario.
fn played(name: &str, capture: &[u8]) -> Report {
    let directory = scenario(name);
    let conversations = conversations_in(capture, &RecordedSetup::read(&directory).unwrap());
    play_dry(&conversations, &directory, honest(), |_| {})
}

#[test]
fn harmless_variants_of_captures_raise_no_alarm() {
    let mut all = Vec::new();
    for name in ["grants", "preemption", "session_lifecycle"] {
        let capture = std::fs::read(scenario(name).join("traffic.pcap")).unwrap();
        let segments = segments_of(&capture);
        let as_it_is = played(name, &capture);
        assert!(as_it_is.agrees() && as_it_is.calls.compared() > 5, "{name}: {as_it_is}");
        for (variant, change) in SAME {
            let report = played(name, &change(segments.clone()));
            let counts = |report: &Report| {
                (report.calls, report.notices, report.times.compared(), report.in_flight)
            };
            if !report.agrees() || counts(&report) != counts(&as_it_is) {
                all.push(format!("{name}, {variant}: {report}"));
            }
        }
        for (variant, change) in OTHER {
            let report = played(name, &change(segments.clone()));
            if !report.different.is_empty() {
                all.push(format!("{name}, {variant}: {report}"));
            }
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn two_cluster_managers_on_one_port_are_told_apart() {
    use crate::conversation::{Ports, conversations, managers};
    let directory = scenario("grants");
    let ports = RecordedSetup::read(&directory).unwrap().ports;
    let at = |host: u8| {
        let address =
            move |at: SocketAddr| SocketAddr::new(IpAddr::from([10, 0, 0, host]), at.port());
        let capture = std::fs::read(scenario("grants").join("traffic.pcap")).unwrap();
        moved(segments_of(&capture), address)
    };
    let read = |segments: Vec<Written>| {
        let file = in_order(segments);
        crate::capture::Capture::read(&file[..], &crate::capture::Limits::default()).unwrap()
    };
    let one = read(at(1));
    let alone = conversations(&one, &ports);
    assert_eq!(managers(&alone).len(), 1);
    // Another cluster, a minute earlier or later, with nodes of its own.
    let other = at(2).into_iter().map(|mut segment| {
        for name in [b"n1", b"n2", b"n3", b"n4"] {
            let found = (0..segment.data.len().saturating_sub(1))
                .filter(|place| segment.data[*place..].starts_with(name))
                .collect::<Vec<_>>();
            found.into_iter().for_each(|place| segment.data[place] = b'm');
        }
        segment
    });
    let both = read([at(1), other.collect()].concat());
    let found = managers(&conversations(&both, &ports));
    let addresses: Vec<Vec<String>> =
        found.iter().map(|it| it.addresses.iter().map(ToString::to_string).collect()).collect();
    assert_eq!(addresses, [["10.0.0.1"], ["10.0.0.2"]]);
    let chosen =
        Ports { cluster_manager_at: [IpAddr::from([10, 0, 0, 1])].into(), ..ports.clone() };
    let first = conversations(&both, &chosen);
    assert_eq!(managers(&first).len(), 1);
    let report = play_dry(&first, &directory, honest(), |_| {});
    let expected = play_dry(&alone, &directory, honest(), |_| {});
    assert!(report.agrees(), "{report}");
    assert_eq!((report.calls, report.notices), (expected.calls, expected.notices));
    // One cluster manager at two addresses has the same nodes at both.
    let same = read([at(1), at(2)].concat());
    let found = managers(&conversations(&same, &ports));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].addresses.len(), 2);
}

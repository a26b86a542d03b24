//! What a program hands to the one that takes its place in the same process: open descriptors, and a text about them.
//!
//! The number of the process stays the same, and so do its parent and its terminal. Everything else of the old
//! program ends, as at the end of a process. What is handed over arrives through standard input, which a service
//! does not read: a socket with messages that carry the descriptors, the first of which is a file with the text.

use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, IoSlice, IoSliceMut, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::id;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::unistd::execve;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// The variable that says that standard input has descriptors for this process: its number.
pub const VARIABLE: &str = "CORONA_HANDOVER";
/// Descriptors of one message; the system allows 253.
const OF_MESSAGE: usize = 200;

/// A text about descriptors. The kernel has it while it passes from one program to the next, so that neither has a copy.
#[derive(Debug)]
pub struct Text(File);

impl Text {
    /// What this writes.
    ///
    /// # Errors
    /// There is no room for it, and errors of `write`.
    pub fn written(
        write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
    ) -> io::Result<Text> {
        let file = File::from(memfd_create("handover", MemfdFlags::CLOEXEC)?);
        let mut writer = BufWriter::new(&file);
        write(&mut writer)?;
        writer.flush()?;
        drop(writer);
        // The place in the file goes over with it: an earlier program reads from where it is.
        (&file).rewind()?;
        Ok(Text(file))
    }

    /// Reads it from its beginning.
    ///
    /// # Errors
    /// The system refuses.
    pub fn reader(&mut self) -> io::Result<BufReader<&File>> {
        self.0.rewind()?;
        Ok(BufReader::with_capacity(1 << 16, &self.0))
    }
}

/// What the former program has handed over.
#[derive(Debug)]
pub struct Handed {
    /// The text about the descriptors.
    pub text: Text,
    /// The descriptors, in the order in which they were given. The last ones are missing if the system had no room.
    pub descriptors: Vec<OwnedFd>,
}

/// Puts this program with these arguments (the first is its name) in the place of the running one. It finds what
/// is handed over with [`received`]. A SIGHUP from now on waits until it [hears](hear_hangups) them. Returns only
/// if the system refuses.
pub fn replace_program(program: &Path, arguments: &[OsString], handed: Handed) -> io::Error {
    let replace = || -> io::Result<Infallible> {
        rustix::stdio::dup2_stdin(prepare(handed)?)?;
        // Until the next program has a handler, the signal would end the process.
        hangups().thread_block()?;
        let text = |text: &OsStr| CString::new(text.as_bytes()).map_err(io::Error::from);
        let program = text(program.as_os_str())?;
        let arguments = arguments.iter().map(|argument| text(argument));
        let arguments = arguments.collect::<io::Result<Vec<CString>>>()?;
        let others = std::env::vars_os().filter(|(name, _)| name != VARIABLE);
        let own = (VARIABLE.into(), id().to_string().into());
        let variables = others.chain([own]).map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            text(&name)
        });
        let variables = variables.collect::<io::Result<Vec<CString>>>()?;
        // Unlike that of the standard library it keeps what is blocked.
        Ok(execve(&program, &arguments, &variables)?)
    };
    match replace() {
        Err(error) => error,
        Ok(never) => match never {},
    }
}

/// Has SIGHUP, SIGTERM and SIGINT wait until a thread [hears](hear_signals) them, also over
/// [`replace_program`]. They are blocked for this thread, for those that it starts, and for their processes
/// ([`unheld`]).
///
/// # Errors
/// The system refuses.
pub fn hold_signals() -> io::Result<()> {
    Ok(held().thread_block()?)
}

/// Lets this thread receive the signals of [`hold_signals`], for which there are handlers now: also those that were
/// sent before.
///
/// # Errors
/// The system refuses.
pub fn hear_signals() -> io::Result<()> {
    Ok(held().thread_unblock()?)
}

/// Sends a signal that was heard to this thread once more. While it is [held](hold_signals), it waits for the program that
/// this thread puts in the place of this one; sent to the process, another thread could hear it.
///
/// # Errors
/// The system refuses.
pub fn hear_again(is_interrupt: bool) -> io::Result<()> {
    let signal = if is_interrupt { Signal::SIGINT } else { Signal::SIGTERM };
    Ok(nix::sys::signal::raise(signal)?)
}

/// Does something, such as the start of a process, which inherits what is blocked, while this thread holds no signals.
pub fn unheld<T>(start: impl FnOnce() -> T) -> T {
    let before = held().thread_swap_mask(SigmaskHow::SIG_UNBLOCK);
    let started = start();
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
    started
}

fn held() -> SigSet {
    let mut held = hangups();
    held.add(Signal::SIGTERM);
    held.add(Signal::SIGINT);
    held
}

/// Lets this thread receive SIGHUP, for which there is a handler now: also one that was sent while the program was
/// replaced.
///
/// # Errors
/// The system refuses.
pub fn hear_hangups() -> io::Result<()> {
    Ok(hangups().thread_unblock()?)
}

fn hangups() -> SigSet {
    Signal::SIGHUP.into()
}

/// What the former program of this process has handed over; none if there was none. Standard input is empty
/// afterwards.
///
/// # Errors
/// The system refuses, or standard input is no such socket.
pub fn received() -> io::Result<Option<Handed>> {
    let ours = std::env::var(VARIABLE).is_ok_and(|process| process == id().to_string());
    if !ours {
        return Ok(None);
    }
    let handed = read_all(io::stdin().as_fd());
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    handed.map(Some)
}

/// A socket from which all of it can be read.
fn prepare(handed: Handed) -> io::Result<OwnedFd> {
    let Text(text) = handed.text;
    let (inner, outer) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let mut descriptors = vec![OwnedFd::from(text)];
    descriptors.extend(handed.descriptors);
    for part in descriptors.chunks(OF_MESSAGE) {
        let part: Vec<BorrowedFd<'_>> = part.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(OF_MESSAGE))];
        let mut message = SendAncillaryBuffer::new(&mut space);
        message.push(SendAncillaryMessage::ScmRights(&part));
        // Nobody reads yet: where there is no room, the rest is left out.
        match sendmsg(&outer, &[IoSlice::new(b".")], &mut message, SendFlags::DONTWAIT) {
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::TOOMANYREFS) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(inner)
}

fn read_all(socket: BorrowedFd<'_>) -> io::Result<Handed> {
    let mut descriptors = Vec::new();
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(OF_MESSAGE))];
        let mut message = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut message, flags)?;
        if got.bytes == 0 {
            break;
        }
        for part in message.drain() {
            if let RecvAncillaryMessage::ScmRights(part) = part {
                descriptors.extend(part);
            }
        }
    }
    let mut descriptors = descriptors.into_iter();
    let text = descriptors.next().ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(Handed { text: Text(File::from(text)), descriptors: descriptors.collect() })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn descriptors_arrive_in_their_order_with_the_text() {
        let files = (0..450).map(|number: u32| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&number.to_be_bytes()).unwrap();
            file.rewind().unwrap();
            OwnedFd::from(file)
        });
        let text = vec![7; 300_000];
        let written = Text::written(|writer| writer.write_all(&text)).unwrap();
        let socket = prepare(Handed { text: written, descriptors: files.collect() }).unwrap();
        let mut handed = read_all(socket.as_fd()).unwrap();
        // Earlier programs read from the place where the file is.
        let mut read = Vec::new();
        handed.text.0.read_to_end(&mut read).unwrap();
        assert_eq!(read, text);
        // It can be read more than once.
        for _ in 0..2 {
            let mut read = Vec::new();
            handed.text.reader().unwrap().read_to_end(&mut read).unwrap();
            assert_eq!((read, handed.descriptors.len()), (text.clone(), 450));
        }
        for (number, descriptor) in (0_u32..).zip(handed.descriptors) {
            let mut bytes = [0; 4];
            File::from(descriptor).read_exact(&mut bytes).unwrap();
            assert_eq!(u32::from_be_bytes(bytes), number);
        }
    }

    /// The signals that a process of this name has blocked, as the kernel prints them.
    fn blocked() -> u64 {
        let status = std::process::Command::new("cat").arg("/proc/self/status").output().unwrap();
        let status = String::from_utf8(status.stdout).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap()
    }

    #[test]
    fn processes_do_not_inherit_that_signals_are_held() {
        // A thread of its own: what it holds ends with it.
        let test = || {
            let all = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM];
            let all: u64 = all.into_iter().map(|signal| 1 << (signal as i32 - 1)).sum();
            hold_signals().unwrap();
            assert_eq!(blocked() & all, all);
            assert_eq!(unheld(blocked) & all, 0);
            assert_eq!(blocked() & all, all, "they are held again");
            hear_again(false).unwrap();
            let waits = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let waits = waits.lines().find_map(|line| line.strip_prefix("SigPnd:")).unwrap();
            let waits = u64::from_str_radix(waits.trim(), 16).unwrap();
            assert_eq!(waits & all, 1 << (Signal::SIGTERM as i32 - 1), "it waits for this thread");
            // Taken, so that it does not end the test.
            assert_eq!(held().wait().unwrap(), Signal::SIGTERM);
            hear_signals().unwrap();
            assert_eq!(blocked() & all, 0);
        };
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn a_process_that_was_started_as_usual_has_been_handed_nothing() {
        assert!(received().unwrap().is_none());
    }
}

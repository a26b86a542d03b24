//! Received bytes of a connection that are not handled yet: messages are taken out one by one,
//! however the peer split them into frames and segments.
//!
//! It holds bytes and knows no sockets; its owner reads from one. It grows with the received bytes,
//! never with the claims of a header. Spec: cluster-manager/01 §1.1, §2.1.

use bytes::{Buf, BytesMut};

use super::message::Read;
use super::scan::{Bounds, Malformed, Scanner, u32_at};
use super::service::Framing;

/// Bytes of a connection between the socket and the messages.
#[derive(Debug)]
pub(crate) struct Inbox {
    framing: Framing,
    bounds: Bounds,
    max_frame_bytes: usize,
    /// As it came from the socket.
    arrived: BytesMut,
    /// How many of the first bytes of `arrived` belong to a frame that has been opened.
    in_frame: usize,
    /// The content of frames whose last message continues in the next frame.
    carried: BytesMut,
    /// The search for the end of the message that `carried` or, on a bare stream, `arrived` starts
    /// with, if it is incomplete.
    scanner: Option<Scanner>,
}

/// A buffer that has grown beyond this is freed when it is empty.
const KEEP_BYTES: usize = 16 * 1024;
/// The buffer that a waiting connection keeps for the next message. Most messages fit; there may be
/// a hundred thousand connections.
const READ_BYTES: usize = 2 * 1024;

impl Inbox {
    pub(crate) fn new(framing: Framing, bounds: Bounds, max_frame_bytes: usize) -> Inbox {
        Inbox {
            framing,
            bounds,
            max_frame_bytes,
            arrived: BytesMut::new(),
            in_frame: 0,
            carried: BytesMut::new(),
            scanner: None,
        }
    }

    /// What has arrived and was not taken.
    pub(crate) fn arrived(&self) -> &[u8] {
        &self.arrived
    }

    /// The buffer for bytes from the socket. It has room.
    pub(crate) fn space(&mut self) -> &mut BytesMut {
        if self.is_empty() && self.arrived.capacity() > KEEP_BYTES {
            self.arrived = BytesMut::new();
        }
        if self.carried.is_empty() && self.carried.capacity() > 0 {
            self.carried = BytesMut::new();
        }
        if self.arrived.capacity() - self.arrived.len() < READ_BYTES / 2 {
            self.arrived.reserve(READ_BYTES);
        }
        &mut self.arrived
    }

    /// Whether no incomplete message or frame is buffered.
    pub(crate) fn is_empty(&self) -> bool {
        self.arrived.is_empty() && self.carried.is_empty()
    }

    /// Bytes held.
    pub(crate) fn len(&self) -> usize {
        self.arrived.len() + self.carried.len()
    }

    /// An upper bound of the bytes of the next message, if it may be there as a whole; `None` if more
    /// must arrive for sure.
    pub(crate) fn next_bytes(&self) -> Option<usize> {
        if self.framing == Framing::Bare || !self.carried.is_empty() {
            return Some(self.len());
        }
        if self.in_frame > 0 {
            return Some(self.in_frame);
        }
        let length = u32_at(&self.arrived, 0)?;
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        // An illegal length is refused when the message is taken.
        let legal = length.cast_signed() > 0 && bytes <= self.max_frame_bytes;
        (!legal || self.arrived.len() - 4 >= bytes).then(|| bytes.min(self.arrived.len()))
    }

    /// Takes out the next message. `read` is shown bytes that start with it, and perhaps do not
    /// end with it. None: more must arrive.
    pub(crate) fn take<T>(
        &mut self,
        read: impl Fn(&[u8]) -> Result<Read<T>, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        match self.framing {
            Framing::Framed => self.take_framed(read),
            Framing::Bare => self.take_bare(read),
        }
    }

    fn take_bare<T>(
        &mut self,
        read: impl Fn(&[u8]) -> Result<Read<T>, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        if self.arrived.is_empty() {
            return Ok(None);
        }
        let scanner = self.scanner.get_or_insert_with(|| Scanner::message(self.bounds));
        let Some(end) = scanner.run(&self.arrived)? else { return Ok(None) };
        self.scanner = None;
        let item = complete(read(begin_of(&self.arrived, end)?)?)?;
        self.arrived.advance(end);
        Ok(Some(item))
    }

    fn take_framed<T>(
        &mut self,
        read: impl Fn(&[u8]) -> Result<Read<T>, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        loop {
            if !self.carried.is_empty() {
                if self.scanner.is_some() && !self.carry_frame()? {
                    return Ok(None);
                }
                match self.take_carried(&read)? {
                    Some(item) => return Ok(Some(item)),
                    None => continue,
                }
            }
            if self.in_frame == 0 && !self.open_frame()? {
                return Ok(None);
            }
            match read(begin_of(&self.arrived, self.in_frame)?)? {
                Read::Done(item, used) => {
                    self.arrived.advance(used);
                    self.in_frame -= used;
                    return Ok(Some(item));
                }
                Read::Refused(item) => {
                    self.close_frame();
                    return Ok(Some(item));
                }
                Read::Incomplete => {
                    self.carried.extend_from_slice(begin_of(&self.arrived, self.in_frame)?);
                    self.close_frame();
                    self.search()?;
                }
            }
        }
    }

    /// Takes the message at the start of `carried`, if it is all there; otherwise a scanner waits
    /// for the next frame.
    fn take_carried<T>(
        &mut self,
        read: impl Fn(&[u8]) -> Result<Read<T>, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        let was_searched = self.scanner.is_some();
        let read = match &mut self.scanner {
            Some(scanner) => {
                let Some(end) = scanner.run(&self.carried)? else { return Ok(None) };
                self.scanner = None;
                read(begin_of(&self.carried, end)?)?
            }
            None => read(&self.carried)?,
        };
        match read {
            Read::Done(item, used) => {
                self.carried.advance(used);
                Ok(Some(item))
            }
            Read::Refused(item) => {
                self.carried.clear();
                Ok(Some(item))
            }
            Read::Incomplete if was_searched => Err(Malformed::Unreadable),
            Read::Incomplete => {
                self.search()?;
                Ok(None)
            }
        }
    }

    /// Starts the search for the end of the message that `carried` starts with.
    fn search(&mut self) -> Result<(), Malformed> {
        let mut scanner = Scanner::message(self.bounds);
        match scanner.run(&self.carried)? {
            Some(_) => Err(Malformed::Unreadable),
            None => {
                self.scanner = Some(scanner);
                Ok(())
            }
        }
    }

    /// Opens the frame that `arrived` starts with, if it is complete.
    fn open_frame(&mut self) -> Result<bool, Malformed> {
        let Some(length) = u32_at(&self.arrived, 0) else { return Ok(false) };
        let length = length.cast_signed();
        let bytes = usize::try_from(length).ok().filter(|bytes| *bytes > 0);
        let bytes = bytes.ok_or(Malformed::FrameLength(length))?;
        if bytes > self.max_frame_bytes {
            return Err(Malformed::TooLarge { bytes: bytes as u64, limit: self.max_frame_bytes });
        }
        if self.arrived.len() - 4 < bytes {
            return Ok(false);
        }
        self.arrived.advance(4);
        self.in_frame = bytes;
        Ok(true)
    }

    fn close_frame(&mut self) {
        self.arrived.advance(self.in_frame);
        self.in_frame = 0;
    }

    /// Adds the next frame to `carried`, if it is complete.
    fn carry_frame(&mut self) -> Result<bool, Malformed> {
        if !self.open_frame()? {
            return Ok(false);
        }
        self.carried.extend_from_slice(begin_of(&self.arrived, self.in_frame)?);
        self.close_frame();
        Ok(true)
    }
}

/// The first bytes, which have arrived.
fn begin_of(bytes: &[u8], length: usize) -> Result<&[u8], Malformed> {
    bytes.get(..length).ok_or(Malformed::Unreadable)
}

/// The value read from bytes that hold exactly one message.
fn complete<T>(read: Read<T>) -> Result<T, Malformed> {
    match read {
        Read::Done(item, _) | Read::Refused(item) => Ok(item),
        Read::Incomplete => Err(Malformed::Unreadable),
    }
}

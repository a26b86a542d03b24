//! The streams of events at `/api/v1/events`, put together from the pieces of a response.

use serde_json::{Map, Value};

/// The maximum size of an incomplete event, in bytes. No daemon sends a larger one.
const LONGEST: usize = 1 << 20;

/// An event as a stream has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamedEvent {
    /// Where a stream goes on behind it; `None` if it is in no stream again.
    pub id: Option<String>,
    /// Its name, such as `node_added`.
    pub name: String,
    /// Its members as JSON.
    pub data: String,
}

impl StreamedEvent {
    /// All its members, and its name as `event`. `None` for other data than a JSON object.
    pub fn members(&self) -> Option<Map<String, Value>> {
        let mut members: Map<String, Value> = serde_json::from_str(&self.data).ok()?;
        members.insert("event".into(), self.name.as_str().into());
        Some(members)
    }
}

/// Parses server-sent events.
#[derive(Debug, Default)]
pub struct EventReader {
    rest: Vec<u8>,
    event: StreamedEvent,
}

impl EventReader {
    /// The events that are complete with this piece.
    pub fn push(&mut self, piece: &[u8]) -> Vec<StreamedEvent> {
        if self.rest.len() + self.event.data.len() > LONGEST {
            *self = EventReader::default();
        }
        self.rest.extend_from_slice(piece);
        let mut events = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            match line.trim_end_matches(['\r', '\n']).split_once(':') {
                Some(("id", id)) => self.event.id = Some(id.trim_start().to_owned()),
                Some(("event", name)) => self.event.name = name.trim_start().to_owned(),
                Some(("data", data)) => self.event.data.push_str(data.trim_start()),
                Some(_) => {}
                None => {
                    let event = std::mem::take(&mut self.event);
                    if !event.name.is_empty() {
                        events.push(event);
                    }
                }
            }
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_out_of_pieces() {
        let stream = "retry: 3000\n\nid: 7-1\nevent: node_added\ndata: {\"node\":\"é\"}\n\n\
            : still here\n\nevent: missed\ndata: {}\n\nid: 7-2\nevent: safe_mode\ndata: {\"on\":true}\n\n";
        let event = |id: Option<&str>, name: &str, data: &str| StreamedEvent {
            id: id.map(str::to_owned),
            name: name.to_owned(),
            data: data.to_owned(),
        };
        let expected = [
            event(Some("7-1"), "node_added", "{\"node\":\"é\"}"),
            event(None, "missed", "{}"),
            event(Some("7-2"), "safe_mode", "{\"on\":true}"),
        ];
        for size in 1..stream.len() {
            let mut reader = EventReader::default();
            let pieces = stream.as_bytes().chunks(size);
            let events: Vec<StreamedEvent> = pieces.flat_map(|piece| reader.push(piece)).collect();
            assert_eq!(events, expected, "{size}");
        }
    }
}

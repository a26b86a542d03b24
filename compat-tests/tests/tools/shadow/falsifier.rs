//! A relay in front of a cluster manager that changes its messages: answers to clients, and notices
//! to session drivers.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use corona::conformance::conversation::Offered;
use corona::wire::value::{Message, StreamReader, Value};

/// Changes a message of the cluster manager: an answer, or a call to a session driver. One without a
/// name is not sent, and the connection is closed.
pub(crate) type Edit = Box<dyn FnMut(&mut Message) + Send>;

/// Longer messages are none of these tests.
const MAX_BYTES: usize = 16 << 20;

/// The relay. Its threads end with the test.
#[derive(Clone)]
pub(crate) struct Falsifier {
    primary: SocketAddr,
    edit: Arc<Mutex<Edit>>,
    /// The driver behind each of our ports.
    drivers: Arc<Mutex<HashMap<u16, u16>>>,
}

impl Falsifier {
    /// Where clients find it.
    pub(crate) fn start(primary: SocketAddr, edit: Edit) -> SocketAddr {
        let falsifier =
            Falsifier { primary, edit: Arc::new(Mutex::new(edit)), drivers: Arc::default() };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                falsifier.clone().serve(client);
            }
        });
        address
    }

    fn serve(self, client: TcpStream) {
        let Ok(server) = TcpStream::connect(self.primary) else { return };
        let other = self.clone();
        pass(&client, &server, Offered::ClusterManager, move |message| other.announce(message));
        pass(&server, &client, Offered::ClusterManager, move |message| {
            self.edit.lock().unwrap()(message);
            self.tell_real_driver(message);
        });
    }

    /// A session that starts is announced with a port of this relay.
    fn announce(&self, message: &mut Message) {
        if message.name != "sessionStart" {
            return;
        }
        let Some(port) = port_of(message, "info") else { return };
        let Value::I32(driver) = *port else { return };
        let driver = u16::try_from(driver).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        *port = Value::I32(i32::from(own));
        self.drivers.lock().unwrap().insert(own, driver);
        let edit = self.edit.clone();
        thread::spawn(move || {
            for primary in listener.incoming().flatten() {
                let Ok(session) = TcpStream::connect(("127.0.0.1", driver)) else { continue };
                let edit = edit.clone();
                pass(&primary, &session, Offered::SessionDriver, move |message| {
                    edit.lock().unwrap()(message);
                });
                pass(&session, &primary, Offered::SessionDriver, |_| {});
            }
        });
    }

    fn tell_real_driver(&self, message: &mut Message) {
        if message.name != "getSessionInfo" {
            return;
        }
        if let Some(port) = port_of(message, "success")
            && let Value::I32(own) = *port
            && let Some(driver) = self.drivers.lock().unwrap().get(&(own as u16))
        {
            *port = Value::I32(i32::from(*driver));
        }
    }
}

/// Passes messages on, each as `edit` leaves it, until either side ends.
fn pass(
    from: &TcpStream,
    to: &TcpStream,
    service: Offered,
    mut edit: impl FnMut(&mut Message) + Send + 'static,
) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    to.set_nodelay(true).unwrap();
    thread::spawn(move || {
        let mut reader = StreamReader::new(service.schema(), service.framing(), MAX_BYTES);
        let mut piece = vec![0; 64 << 10];
        while let Ok(size @ 1..) = from.read(&mut piece) {
            reader.push(&piece[..size]);
            while let Ok(Some(mut message)) = reader.next_message() {
                edit(&mut message);
                if message.name.is_empty() {
                    let _ =
                        to.shutdown(Shutdown::Both).and_then(|()| from.shutdown(Shutdown::Both));
                    return;
                }
                let mut bytes = Vec::new();
                message.write(service.schema(), service.framing(), &mut bytes).unwrap();
                if to.write_all(&bytes).is_err() {
                    break;
                }
            }
        }
        // The other side may have disconnected already.
        let _ = to.shutdown(Shutdown::Write);
    });
}

fn port_of<'a>(message: &'a mut Message, of: &str) -> Option<&'a mut Value> {
    let info = find(message.body.as_mut().ok()?, of)?;
    find(find(info, "address")?, "port")
}

/// A field of a struct, if it is there.
pub(crate) fn find<'a>(value: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    let Value::Struct(fields) = value else { return None };
    fields.iter_mut().find(|(field, _)| *field == name).map(|(_, value)| value)
}

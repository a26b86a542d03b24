//! The tools of the built program against servers that answer with nonsense.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use compat_tests::{corona_program, nested};

/// The id of the call behind the header of a connection, once it has arrived.
fn call_id(request: &[u8]) -> Option<[u8; 4]> {
    let number = |at: usize| request.get(at..at + 4)?.first_chunk::<4>().copied();
    let header = usize::try_from(i32::from_be_bytes(number(5)?)).ok()?;
    // Behind the length of the call.
    number(5 + 4 + header + 4)
}

/// Answers the first call with arrays inside one another.
fn answer(mut stream: TcpStream) {
    let mut request = Vec::new();
    let mut part = [0; 4096];
    while call_id(&request).is_none() {
        match stream.read(&mut part) {
            Ok(0) | Err(_) => return,
            Ok(read) => request.extend_from_slice(&part[..read]),
        }
    }
    let id = call_id(&request).unwrap();
    let reply = [&id[..], &0_i32.to_be_bytes(), &nested::arrays()].concat();
    // The client may have read enough.
    let _ = stream.write_all(&reply);
}

#[test]
fn a_name_node_that_answers_with_nested_arrays_gets_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let root = format!("hdfs://{}/", listener.local_addr().unwrap());
    thread::spawn(move || listener.incoming().flatten().for_each(answer));
    let mut command = Command::new(corona_program());
    command.env_remove("HADOOP_CONF_DIR").args(["fs", "ls", &root]);
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("class \"[[I\" is not known here"), "{error}");
}

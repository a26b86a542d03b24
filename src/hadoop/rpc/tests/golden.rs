//! Conversations as the original had them, byte for byte. Spec: mapreduce/01 §1.9.

use super::*;
use crate::object::Class;
use crate::testing::{hex, unhex};

const OPENING: &str = "
    68727063030000004c326f72672e6170616368652e6861646f6f702e6d61707265642e436f726f6e61
    5461736b547261636b657250726f746f636f6c010a535452494e475f55474905616c69636501057573657273
    0000007b00000000001467657450726f746f636f6c5369676e61747572650000000300106a61
    76612e6c616e672e537472696e6700326f72672e6170616368652e6861646f6f702e6d61707265642e
    436f726f6e615461736b547261636b657250726f746f636f6c00046c6f6e6700000000000000020003
    696e740f71fa21";

const SIGNATURE: &str = r#"
    00000000 00000000 0027"org.apache.hadoop.ipc.ProtocolSignature"
    0027"org.apache.hadoop.ipc.ProtocolSignature" 0000000000000002 00"#;

const SUBMIT: &str = "
    0000011a00000001000d7375626d6974416374696f6e7300000001002d5b4c6f72672e617061636865
    2e6861646f6f702e6d61707265642e5461736b547261636b6572416374696f6e3b00000001002a6f72
    672e6170616368652e6861646f6f702e6d61707265642e5461736b547261636b6572416374696f6e00
    276f72672e6170616368652e6861646f6f702e6d61707265642e4b696c6c5461736b416374696f6e09
    4b494c4c5f5441534b0000002a6f72672e6170616368652e6861646f6f702e6d61707265642e436f72
    6f6e6153657373696f6e496e666f0000000e3230313430313031313230302e370000000e6a742e6578
    616d706c652e636f6d8e9c410000000000000003000000010e3230313430313031313230302e3701";

const VOID: &str = "
    0000000100000000001d6f72672e6170616368652e6861646f6f702e696f2e5772697461626c650030
    6f72672e6170616368652e6861646f6f702e696f2e4f626a6563745772697461626c65244e756c6c49
    6e7374616e63650004766f6964";

#[tokio::test]
async fn our_server_says_what_the_original_says() {
    let running = start(Limits::default()).await;
    let mut raw = Raw::connect(&running).await;
    raw.send(&unhex(OPENING)).await;
    assert_eq!(hex(&raw.take(99).await), hex(&unhex(SIGNATURE)));
    raw.send(&unhex(SUBMIT)).await;
    assert_eq!(hex(&raw.take(95).await), hex(&unhex(VOID)));
    assert_eq!(running.peer.done(), ["Some(1) actions of alice"]);
}

#[tokio::test]
async fn our_client_says_what_the_original_says() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = local(listener.local_addr().unwrap().port());
    let action = {
        let submit = unhex(SUBMIT);
        let call = Call::decode(&mut Reader::new(&submit[4..])).unwrap();
        let [actions] = call.parameters.try_into().unwrap();
        Vec::<TaskTrackerAction>::from_object(actions).unwrap()
    };
    let server = async {
        let mut raw = Raw::over(listener.accept().await.unwrap().0);
        let opening = unhex(OPENING);
        assert_eq!(hex(&raw.take(opening.len()).await), hex(&opening));
        raw.send(&unhex(SIGNATURE)).await;
        let submit = unhex(SUBMIT);
        assert_eq!(hex(&raw.take(submit.len()).await), hex(&submit));
        raw.send(&unhex(VOID)).await;
    };
    let mut client =
        corona_task_tracker::CoronaTaskTrackerClient::new(address, ClientOptions::new(alice()));
    let (result, ()) =
        soon(async { tokio::join!(client.submit_actions(Some(action)), server) }).await;
    assert!(result.is_ok(), "{result:?}");
}

#[test]
fn replies_of_all_kinds() {
    let error = |class: &str, text: &str| RemoteError {
        class: Some(class.to_owned()),
        text: Some(text.to_owned()),
    };
    let not_found = "java.io.FileNotFoundException";
    let table = [
        (
            Outcome::Value(Object::String("0.20.1-dev from r by u on d".to_owned())),
            r#"00000000 0010"java.lang.String" 001b"0.20.1-dev from r by u on d""#,
        ),
        (
            Outcome::Value(Object::Null(Class::String)),
            r#"00000000 001d"org.apache.hadoop.io.Writable"
            0030"org.apache.hadoop.io.ObjectWritable$NullInstance" 0010"java.lang.String""#,
        ),
        (
            Outcome::Value(Vec::<TaskCompletionEvent>::new().into_object()),
            r#"00000000 002f"[Lorg.apache.hadoop.mapred.TaskCompletionEvent;" 00000000"#,
        ),
        (
            Outcome::Value(
                HeartbeatResponse { interval_ms: 3000, ..Default::default() }.into_object(),
            ),
            r#"00000000 002a"org.apache.hadoop.mapred.HeartbeatResponse"
            002a"org.apache.hadoop.mapred.HeartbeatResponse" 0000 00000bb8 00 00000000"#,
        ),
        (
            Outcome::Error(error(not_found, "java.io.FileNotFoundException: nope\n")),
            r#"00000001 0000001d"java.io.FileNotFoundException"
            00000024"java.io.FileNotFoundException: nope" 0a"#,
        ),
        (
            Outcome::Fatal(RemoteError { class: None, text: Some("no".to_owned()) }),
            r#"ffffffff ffffffff 00000002"no""#,
        ),
    ];
    for (outcome, text) in table {
        let reply = Reply { id: 5, outcome };
        let golden = unhex(&format!("00000005 {text}"));
        assert_eq!(hex(&bytes(&reply)), hex(&golden));
        let mut reader = Reader::new(&golden);
        assert_eq!(Reply::decode(&mut reader), Ok(reply));
        assert_eq!(reader.rest(), b"");
    }
    let unknown = Reply::decode(&mut Reader::new(&unhex("00000005 00000002")));
    assert!(unknown.is_err());
}

#[test]
fn faults_as_texts() {
    let table = [
        (Fault::io("no room"), "java.io.IOException: no room\n", false),
        (
            Fault::unexpected("java.lang.RuntimeException", "rt"),
            "java.io.IOException: java.lang.RuntimeException: rt\n",
            false,
        ),
        (
            Fault::no_such_method("a.B.c(int)"),
            "java.io.IOException: java.lang.NoSuchMethodException: a.B.c(int)\n",
            true,
        ),
    ];
    for (fault, text, no_such_method) in table {
        let error = RemoteError::from(fault);
        assert_eq!(error.class.as_deref(), Some("java.io.IOException"));
        assert_eq!(error.text.as_deref(), Some(text));
        assert_eq!(error.to_string(), text.trim_end());
        assert_eq!(error.is_no_such_method(), no_such_method);
    }
    let long = RemoteError::from(Fault::io("x".repeat(1 << 20)));
    assert!(long.text.unwrap().len() < 20_000, "a text is cut");
    let traced = RemoteError { class: Some("C".to_owned()), text: Some("C: m\n\tat x".to_owned()) };
    assert_eq!(traced.to_string(), "C: m");
    assert_eq!(RemoteError { class: None, text: None }.to_string(), "no reason given");
}

//! Values with their classes against bytes that the original wrote, and against nonsense.
//! Spec: mapreduce/01 §1.5, mapreduce/02 §2.14.

use proptest::prelude::*;

use super::*;
use crate::testing::{hex, unhex};
use crate::writables::tests::{new_map, running_map};
use crate::writables::{Named, Task, TaskAttemptId, TaskStatus};

fn written(object: &Object) -> Vec<u8> {
    let mut writer = Writer::new(1 << 20);
    object.encode(&mut writer);
    writer.finish().unwrap()
}

fn check(object: Object, bytes: &str) {
    let bytes = unhex(bytes);
    assert_eq!(hex(&written(&object)), hex(&bytes), "{object:?}");
    let mut reader = Reader::new(&bytes);
    assert_eq!(Object::decode(&mut reader), Ok(object.clone()));
    assert_eq!(reader.rest(), b"");
    for cut in 0..bytes.len() {
        let result = Object::decode(&mut Reader::partial(&bytes[..cut], 1 << 20));
        assert_eq!(result, Err(DecodeError::Truncated), "{object:?} cut to {cut} bytes");
    }
}

fn null(class: &str) -> String {
    format!(
        r#"001d"org.apache.hadoop.io.Writable" 0030"org.apache.hadoop.io.ObjectWritable$NullInstance"
        {:04x}"{class}""#,
        class.len()
    )
}

fn attempt() -> TaskAttemptId {
    "attempt_201401011200.7_0001_m_000003_0".parse().unwrap()
}

#[test]
fn values_with_their_classes() {
    check(Object::String("hi".to_owned()), r#"0010"java.lang.String" 0002 6869"#);
    check(Object::Null(Class::String), &null("java.lang.String"));
    check(Object::Null(Class::Void), &null("void"));
    check(Object::Boolean(true), r#"0007"boolean" 01"#);
    check(Object::Byte(-1), r#"0004"byte" ff"#);
    check(Object::Char(0xfffe), r#"0004"char" fffe"#);
    check(Object::Short(-1), r#"0005"short" ffff"#);
    check(Object::Int(5), r#"0003"int" 00000005"#);
    check(Object::Long(-2), r#"0004"long" fffffffffffffffe"#);
    check(Object::Float(0.5), r#"0005"float" 3f000000"#);
    check(Object::Double(0.5), r#"0006"double" 3fe0000000000000"#);
    check(
        Object::Constant(Class::Enum("org.apache.hadoop.mapred.JobPriority"), "LOW".to_owned()),
        r#"0024"org.apache.hadoop.mapred.JobPriority" 0003"LOW""#,
    );
    let strings = vec![Object::String("a".to_owned()), Object::Null(Class::String)];
    check(
        Object::Array(Class::String, strings),
        &format!(
            r#"0013"[Ljava.lang.String;" 00000002 0010"java.lang.String" 0001 61 {}"#,
            null("java.lang.String")
        ),
    );
    let class = "org.apache.hadoop.mapred.TaskAttemptID";
    let attempts = vec![
        Object::Writable(Class::Object(class), attempt().into()),
        Object::Null(Class::Object(class)),
    ];
    check(
        Object::Array(Class::Object(class), attempts),
        &format!(
            r#"0029"[Lorg.apache.hadoop.mapred.TaskAttemptID;" 00000002 0026"{class}" 0026"{class}"
            00000000 00000003 00000001 0e"201401011200.7" 01 {}"#,
            null(class)
        ),
    );
    check(
        Object::Array(Class::Int, vec![Object::Int(7)]),
        r#"0002"[I" 00000001 0003"int" 00000007"#,
    );
}

/// The class that an interface declares and the object's own may differ.
#[test]
fn declared_and_actual_classes() {
    let task = Object::Writable(Class::Object(Task::DECLARED), new_map().into());
    let bytes = written(&task);
    let front = r#"001d"org.apache.hadoop.mapred.Task" 0020"org.apache.hadoop.mapred.MapTask""#;
    assert!(bytes.starts_with(&unhex(front)));
    assert_eq!(Object::decode(&mut Reader::new(&bytes)), Ok(task));
    let status = Object::Writable(Class::Object(TaskStatus::DECLARED), running_map().into());
    let bytes = written(&status);
    let front = r#"0023"org.apache.hadoop.mapred.TaskStatus"
        0026"org.apache.hadoop.mapred.MapTaskStatus""#;
    assert!(bytes.starts_with(&unhex(front)));
    assert_eq!(Object::decode(&mut Reader::new(&bytes)), Ok(status));
}

#[test]
fn bytes_that_are_no_values() {
    let table = [
        (r#"0002"VV""#, "class \"VV\" is not known here"),
        (r#"0005"a.b.C""#, "class \"a.b.C\" is not known here"),
        (r#"001d"org.apache.hadoop.io.Writable" 0005"a.b.C""#, "class \"a.b.C\" is not known here"),
        (
            r#"001d"org.apache.hadoop.mapred.Task" 001d"org.apache.hadoop.mapred.Task""#,
            "class \"org.apache.hadoop.mapred.Task\" is not known here",
        ),
        (
            r#"0024"org.apache.hadoop.mapred.JobPriority" 0003"NOW""#,
            "\"NOW\" is not a valid org.apache.hadoop.mapred.JobPriority",
        ),
        (r#"0002"[I" 00000001 0004"long" 0000000000000007"#, "class \"long\" is not known here"),
        (r#"0002"[I" ffffffff"#, "a length of -1 where at most 0 bytes can follow"),
        (r#"0002"[I" 7fffffff 00"#, "a length of 2147483647 where at most 1 bytes can follow"),
    ];
    for (bytes, error) in table {
        let result = Object::decode(&mut Reader::new(&unhex(bytes)));
        assert_eq!(result.map_err(|error| error.to_string()), Err(error.to_owned()), "{bytes}");
    }
}

/// Calls and replies are decoded on threads whose stack is small.
#[test]
fn arrays_nested_without_end_are_refused_before_they_are_read() {
    const STACK_BYTES: usize = 128 << 10;
    let array = |class: &str, items: &[u8]| {
        let length = u16::try_from(class.len()).unwrap().to_be_bytes();
        [&length[..], class.as_bytes(), &1_i32.to_be_bytes(), items].concat()
    };
    for class in ["[[I", "[[[[I", "[Ljava.lang.String;", "[Lorg.apache.hadoop.io.Writable;"] {
        let nested = array(class, &[]).repeat((1 << 20) / (class.len() + 6));
        let decode = move || Object::decode(&mut Reader::new(&nested)).map(drop);
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(decode).unwrap();
        assert_eq!(thread.join().unwrap(), Err(DecodeError::class(class)), "{class}");
    }
    // As deep as a class may be.
    let arrays = ["[[[[I", "[[[I", "[[I", "[I"].map(|class| array(class, &[])).concat();
    let bytes = [arrays, unhex(r#"0003"int" 00000007"#)].concat();
    let deep = Object::decode(&mut Reader::new(&bytes)).unwrap();
    assert_eq!(written(&deep), bytes);
}

/// A null stands under the interface of all objects, and names its class behind it.
#[test]
fn nulls_in_arrays_have_the_class_of_the_items() {
    let writable = "org.apache.hadoop.io.Writable";
    let items = [
        ("java.lang.String", "java.lang.String", None),
        ("java.lang.String", "int", Some("class \"int\" is not known here")),
        (writable, writable, None),
        (writable, "java.lang.String", Some("class \"java.lang.String\" is not known here")),
    ];
    for (items, class, error) in items {
        let name = format!("[L{items};");
        let bytes = format!(r#"{:04x}"{name}" 00000001 {}"#, name.len(), null(class));
        let result = Object::decode(&mut Reader::new(&unhex(&bytes)));
        assert_eq!(result.err().map(|error| error.to_string()).as_deref(), error, "{bytes}");
    }
}

/// Values whose bytes are damaged in a few places.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let class = Class::Object("org.apache.hadoop.mapred.TaskAttemptID");
    let attempts =
        vec![Object::Writable(class.clone(), attempt().into()), Object::Null(class.clone())];
    let objects = [
        Object::Array(class, attempts),
        Object::Writable(Class::Object(Task::DECLARED), new_map().into()),
        Object::Writable(Class::Object(TaskStatus::DECLARED), running_map().into()),
        Object::String("aé€😀".to_owned()),
    ];
    let whole = proptest::sample::select(objects.map(|object| written(&object)).to_vec());
    let damage = proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4);
    (whole, damage).prop_map(|(mut bytes, damage)| {
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        bytes
    })
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Object::decode(&mut Reader::new(&bytes));
    }

    /// A value read from damaged bytes is written in a form that reads as the same value.
    #[test]
    fn damaged_values_are_refused_or_kept(bytes in damaged()) {
        if let Ok(object) = Object::decode(&mut Reader::new(&bytes)) {
            let again = written(&object);
            let read = Object::decode(&mut Reader::new(&again)).unwrap();
            prop_assert_eq!(written(&read), again);
        }
    }
}

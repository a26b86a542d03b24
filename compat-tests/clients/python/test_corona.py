"""The package `corona` on a real cluster, which HADOOP_CONF_DIR names; CORONA_BIN names the program.

The working directory is one that the nodes see. The test `python` of compat-tests starts both.
"""

import gc
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time
import unittest

import corona


def until(look):
    """Waits until `look` has something true, and returns it."""
    deadline = time.monotonic() + 120
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)


def runs(text):
    """Whether a process runs whose command line has this text."""
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text.encode() in path.read_bytes():
                return True
        except OSError:
            pass
    return False


def words(line):
    """A mapper."""
    return ((word, 1) for word in line.split())


def total(key, values):
    """A combiner and reducer."""
    yield key, sum(map(int, values))


def refuse(line):
    raise RuntimeError(f"no line such as {line}")


def shout(line):
    """A mapper that returns one line."""
    return line.upper()


def counted(line):
    """A mapper that returns one pair."""
    return line, 1


def nothing(line):
    """A mapper without a result."""


class Commands(unittest.TestCase):
    def test_a_command_has_its_result_and_its_outputs(self):
        run = corona.run("echo out; echo err >&2; exit 3")
        [result] = run.wait()
        self.assertEqual((result.id, result.status, result.succeeded), (1, 3, False))
        self.assertEqual((result.stdout, result.stderr), (b"out\n", b"err\n"))
        self.assertEqual(run.job.status().state, "SUCCEEDED")
        with self.assertRaisesRegex(corona.CommandsFailed, "command 1: exit status 3"):
            run.wait(check=True)
        directory = run.directory
        del run
        self.assertEqual(result.stdout, b"out\n")
        del result
        self.assertFalse(directory.exists())

    def test_values_are_one_word_each(self):
        texts = ["a b", "it's; $(x)", "--", "\N{SNOWMAN}"]
        run = corona.run(["printf", "<%s>", "{}"], each=texts)
        self.assertEqual(run.total, 4)
        self.assertEqual(
            [result.stdout.decode() for result in run.wait(check=True)], [f"<{text}>" for text in texts]
        )
        self.assertEqual(run.done, 4)
        run = corona.run("echo {} $CORONA_TASK_ID", array=range(5, 21, 5))
        self.assertEqual(
            {result.id: result.stdout for result in run}, {n: b"%d %d\n" % (n, n) for n in (5, 10, 15, 20)}
        )
        lines = corona.run(commands=["echo a | tr a b", "false"]).wait()
        self.assertEqual([(result.stdout, result.status) for result in lines], [(b"b\n", 0), (b"", 1)])

    def test_results_arrive_while_others_run_and_a_kill_ends_the_rest(self):
        wait = "sleep 600.2468; true"
        run = corona.run(commands=["echo first", wait], max_running=2)
        self.assertEqual(next(iter(run)).stdout, b"first\n")
        with self.assertRaises(TimeoutError):
            run.wait(0.01)
        run.kill()
        with self.assertRaisesRegex(corona.CoronaError, "was killed"):
            run.wait()
        self.assertEqual(run.done, 1)
        until(lambda: not runs("600.2468"))

    def test_a_kill_ends_commands_in_the_background_of_a_script(self):
        # As a shell without job control starts it; the program inherits it.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        run = corona.run("sleep 30.8642; true")
        run.kill()
        with self.assertRaisesRegex(corona.CoronaError, "was killed"):
            run.wait()

    def test_a_directory_is_resumed(self):
        mark = pathlib.Path("mark").absolute()
        flaky = f"test {{}} = 2 && test ! -e {mark} && exec sleep 600; echo {{}}"
        arguments = dict(array="1-3", output="kept", max_running=3)
        with self.assertRaises(ZeroDivisionError):
            with corona.run(flaky, **arguments) as run:
                until(lambda: run.done == 2)
                1 / 0
        with self.assertRaisesRegex(corona.CoronaError, "add --resume to go on with it"):
            corona.run(flaky, **arguments)
        mark.touch()
        for _ in range(2):
            with corona.run(flaky, **arguments, resume=True) as run:
                pass
            self.assertEqual(
                [(r.id, r.stdout) for r in run.wait(check=True)], [(n, b"%d\n" % n) for n in (1, 2, 3)]
            )
        self.assertIsNone(run.job)

    def test_a_directory_is_resumed_while_its_commands_run(self):
        mark = pathlib.Path("go-on").absolute()
        wait = f"until test -e {mark}; do sleep 0.05; done; echo {{}}"
        first = corona.run(wait, array="1-2", output="continued")
        # Its client dies, and the job goes on.
        first._child._process.kill()
        first._child.wait()
        run = corona.run(wait, array="1-2", output="continued", resume=True)
        self.assertEqual(run.job.id, first.job.id)
        mark.touch()
        self.assertEqual([r.stdout for r in run.wait(check=True)], [b"1\n", b"2\n"])

    def test_commands_whose_results_nobody_can_read_end(self):
        run = corona.run("sleep 600.1357; true")
        job, directory = run.job, run.directory
        until(lambda: runs("600.1357"))
        del run
        self.assertFalse(directory.exists())
        self.assertEqual(job.status().state, "KILLED")
        until(lambda: not runs("600.1357"))

    def test_options_go_to_the_program(self):
        [result] = corona.run("exit 4", options=["--retries=1"]).wait()
        self.assertEqual((result.status, result.attempts, result.stdout_bytes), (4, 2, 0))
        self.assertEqual(corona.run("echo ab").wait()[0].stdout_bytes, 3)

    def test_wrong_arguments_run_nothing(self):
        before = sorted(os.listdir("."))
        for arguments, error in (
            (dict(), ValueError),
            (dict(command="x", commands=["y"]), ValueError),
            (dict(command="x", each=["a\nb"]), ValueError),
            (dict(command="x", array="3-1"), ValueError),
            (dict(command="x", array="many"), ValueError),
            (dict(command="x", each=[]), ValueError),
            (dict(command="x", each=["a\0"]), ValueError),
            (dict(command=""), corona.CoronaError),
            (dict(command="x", memory="much"), corona.CoronaError),
            (dict(command="x", cluster=corona.Cluster(conf_dir="none")), corona.CoronaError),
        ):
            with self.subTest(arguments), self.assertRaises(error):
                corona.run(**arguments)
        self.assertEqual(sorted(os.listdir(".")), before)
        # At once, and not when the interpreter collects what refers to itself.
        gc.disable()
        self.addCleanup(gc.enable)
        try:
            corona.run("x", memory="much")
        except corona.CoronaError as error:
            self.assertIn("--memory", str(error))
        run = corona.run("sleep 600")
        run.kill()
        try:
            run.wait()
        except corona.CoronaError as error:
            self.assertIn("was killed", str(error))
        del run
        self.assertEqual(sorted(os.listdir(".")), before)


class Jobs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        pathlib.Path("text").write_text("a b a\nb\nthe end\n")

    def test_commands_are_steps(self):
        job = corona.map_reduce(
            "text", "out-commands", mapper="builtin:wc", reducer="builtin:wc", name="words"
        )
        self.assertEqual(sorted(job.pairs()), [("a", "2"), ("b", "2"), ("end", "1"), ("the", "1")])
        status = job.status()
        self.assertEqual((status.name, status.state, status.map_progress), ("words", "SUCCEEDED", 1.0))
        self.assertEqual((status.maps.complete, status.reduces.tasks), (1, 1))
        self.assertTrue(status.page.startswith("http://"))
        self.assertEqual(job.counters()["org.apache.hadoop.mapred.Task$Counter"]["MAP_INPUT_RECORDS"], 3)
        self.assertIn(job.id, [listed.id for listed in corona.jobs(all=True)])
        self.assertEqual(corona.Job(job.id).status(), status)
        corona.Job(job.id).wait()

    def test_functions_are_steps(self):
        for directory, steps in (
            ("out-functions", dict(mapper=words, combiner=total, reducer=total, reduces=2)),
            (
                "out-mixed",
                dict(mapper=words, reducer="builtin:sh cut -f1 | uniq -c | awk '{print $2 \"\\t\" $1}'"),
            ),
        ):
            job = corona.map_reduce(["text", "text"], directory, **steps)
            counts = dict(job.pairs())
            self.assertEqual(counts, {"a": "4", "b": "4", "end": "2", "the": "2"})
        for directory, mapper, lines in (
            ("out-line", shout, ["A B A\t", "B\t", "THE END\t"]),
            ("out-pair", counted, ["a b a\t1", "b\t1", "the end\t1"]),
        ):
            job = corona.map_reduce("text", directory, mapper=mapper, reduces=0)
            self.assertEqual(sorted(job.lines()), lines)
        job = corona.map_reduce("text", "out-none", mapper=nothing, reduces=0)
        self.assertEqual(list(job.lines()), [])

    def test_modules_of_packages_go_with_the_job(self):
        package = pathlib.Path("modules/steps")
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "other.py").write_text("SUFFIX = '!'\n")
        (package / "loud.py").write_text(
            "from .other import SUFFIX\ndef loud(line):\n    yield line + SUFFIX, line.encode('utf-8', 'surrogateescape').hex()\n"
        )
        pathlib.Path("bytes").write_bytes(b"\xff\x1c\n\xc3\xa9\n")
        sys.path.insert(0, "modules")
        from steps.loud import loud

        job = corona.map_reduce("bytes", "out-package", mapper=loud, reduces=0)
        lines = [line.encode("utf-8", "surrogateescape") for line in job.lines()]
        self.assertEqual(lines, [b"\xff\x1c!\tff1c", b"\xc3\xa9!\tc3a9"])

    def test_a_script_without_a_guard_is_refused_on_the_nodes(self):
        script = """
            import corona
            def step(line):
                yield line, 1
            {guard}corona.map_reduce("text", "{output}", mapper=step, settings={{"mapred.map.max.attempts": "1"}}).wait()
        """
        for guard, output, status in (("if __name__ == '__main__': ", "guarded", 0), ("", "unguarded", 1)):
            path = pathlib.Path(f"{output}.py")
            path.write_text(textwrap.dedent(script.format(guard=guard, output=output)))
            ended = subprocess.run([sys.executable, path], capture_output=True, text=True)
            self.assertEqual(ended.returncode, status, ended.stderr)
            if status:
                self.assertIn("put what submits jobs below if __name__ == '__main__'", ended.stderr)

    def test_failures_have_their_reasons(self):
        settings = {"mapred.map.max.attempts": "1"}
        job = corona.map_reduce("text", "out-failed", mapper=refuse, settings=settings)
        with self.assertRaises(corona.JobFailed) as caught:
            job.wait()
        [failure] = caught.exception.failures
        self.assertEqual(caught.exception.state, "FAILED")
        self.assertIn("RuntimeError: no line such as a b a", failure.reason)
        logs = [log.text for log in job.logs() if log.log == "stderr"]
        self.assertTrue(any("RuntimeError" in text for text in logs), logs)
        with self.assertRaises(corona.JobFailed):
            corona.Job(job.id).wait()
        for arguments, reason in (
            (dict(inputs="none"), "there is no such file"),
            (dict(output="text"), "is not overwritten"),
            (dict(options=["--nope"]), "unexpected argument"),
            (dict(settings={"mapred.map.max.attempts": "x"}), "mapred.map.max.attempts"),
        ):
            arguments = {"inputs": "text", "output": "out-new", "mapper": "cat", **arguments}
            with self.subTest(arguments), self.assertRaisesRegex(corona.CoronaError, reason):
                corona.map_reduce(**arguments)
        self.assertFalse(os.path.exists("out-new"))
        with self.assertRaises(ValueError):
            corona.map_reduce("text", "out-new", mapper=lambda line: [])

    def test_a_job_is_killed(self):
        job = corona.map_reduce("text", "out-killed", mapper="sh -c 'cat; sleep 600'")
        until(lambda: job.status().maps.running)
        with self.assertRaises(TimeoutError):
            corona.Job(job.id).wait(0.01)
        job.kill()
        with self.assertRaises(corona.JobFailed) as caught:
            job.wait()
        self.assertEqual(caught.exception.state, "KILLED")
        self.assertIsNone(job.status().map_progress)
        with self.assertRaisesRegex(corona.CoronaError, "has ended already: KILLED"):
            job.kill()
        with self.assertRaises(ZeroDivisionError):
            with corona.map_reduce("text", "out-killed-too", mapper="sh -c 'cat; sleep 600'") as job:
                1 / 0
        self.assertEqual(job.status().state, "KILLED")
        with self.assertRaisesRegex(corona.CoronaError, "knows no job"):
            corona.Job("job_201201010000_0001").status()


class Joblib(unittest.TestCase):
    def setUp(self):
        import joblib

        import corona.joblib

        self.joblib = joblib

    def test_calls_run_on_the_nodes(self):
        local = {"base": 10}
        with self.joblib.parallel_config("corona"):
            calls = (
                self.joblib.delayed(lambda n: (n * n + local["base"], os.getpid()))(n) for n in range(40)
            )
            results = self.joblib.Parallel()(calls)
        self.assertEqual([value for value, _ in results], [n * n + 10 for n in range(40)])
        self.assertNotIn(os.getpid(), [pid for _, pid in results])
        self.assertEqual([name for name in os.listdir(".") if name.startswith(".corona-")], [])

    def test_a_slow_call_does_not_hold_later_ones_up(self):
        mark = pathlib.Path("later-one").absolute()

        def call(number):
            if number == 0:
                deadline = time.monotonic() + 120
                while not mark.exists():
                    if time.monotonic() > deadline:
                        raise TimeoutError
                    time.sleep(0.05)
            if number == 20:
                mark.touch()
            print("no result")
            return number

        with self.joblib.parallel_config("corona", n_jobs=2):
            results = self.joblib.Parallel()(self.joblib.delayed(call)(n) for n in range(24))
        self.assertEqual(results, list(range(24)))

    def test_errors_arrive(self):
        with self.joblib.parallel_config("corona", n_jobs=2):
            with self.assertRaisesRegex(ZeroDivisionError, "division"):
                self.joblib.Parallel()(self.joblib.delayed(divmod)(1, n) for n in (1, 0, 2))
            with self.assertRaisesRegex(corona.CoronaError, "the process of the call ended"):
                self.joblib.Parallel()(self.joblib.delayed(os._exit)(1) for _ in range(2))
            self.assertEqual(self.joblib.Parallel()([self.joblib.delayed(abs)(-3)]), [3])


class MrJob(unittest.TestCase):
    def test_the_runner_has_the_results_of_the_inline_runner(self):
        import mrjob.examples

        pathlib.Path("lines").write_text("It was the best of times,\nit was the worst\n")
        pathlib.Path("mrjob.conf").write_text("runners: {}\n")
        script = os.path.join(os.path.dirname(mrjob.examples.__file__), "mr_word_freq_count.py")
        outputs = []
        before = sorted(os.listdir("."))
        for runner in ("inline", "corona"):
            command = [sys.executable, "-m", "corona.mrjob", script, "-c", "mrjob.conf", "-r", runner]
            command += [] if runner == "inline" else ["--python-bin", sys.executable]
            ended = subprocess.run([*command, "lines"], capture_output=True, text=True)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            outputs.append(sorted(ended.stdout.splitlines()))
        self.assertTrue(outputs[0])
        self.assertEqual(outputs[1], outputs[0])
        self.assertEqual(sorted(os.listdir(".")), before)


if __name__ == "__main__":
    unittest.main()

"""Every mistake on the command line is one line that says what was got and what was expected."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fdgjax.config import Config, to_plain
from fdgjax.config.command_line import default_workdir, parse
from fdgjax.data.sources.loading import DATASETS
from fdgjax.methods import METHODS
from fdgjax.utils.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
KEYS = "from fdgjax.config import make_config\ndef get_config():\n    config = make_config('fedavg')\n"
CONFIG = f"--config={ROOT}/configs/hfedf.py"
EVERY = "--config.data.protocol=every_domain"
EVERY_DOMAIN = (CONFIG, EVERY, "--config.data.target=")


def parsed(*arguments: str) -> tuple[Config, Path]:
    return parse(["fdgjax", *arguments])


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        ((), r"no --config given; expected --config=METHOD\[:PRESET\] or --config=FILE.py"),
        ((f"--config={ROOT}/configs/hfdef.py",), r"unknown config file .*did you mean '.*hfedf.py'"),
        (
            ("--config=hfdef",),
            r"unknown method 'hfdef'; .*names, or of your own by fdgjax --with FILE; did you mean 'hfedf'",
        ),
        (("--config=hfedf:pac",), r"unknown data set or preset 'pac'; .*did you mean 'pacs'"),
        (("--config",), r"got --config without a value"),
        ((f"{CONFIG}:pac",), r"unknown data set or preset 'pac'; .*did you mean 'pacs'"),
        ((CONFIG, "--config.roundz=3"), r"unknown config key 'roundz'; .*did you mean 'rounds'"),
        ((CONFIG, "--config.method.emma=1"), r"unknown config key 'method.emma'; .*did you mean 'method.ema'"),
        ((CONFIG, "--config.rounds=many"), r"config.rounds got 'many'; expected a whole number"),
        ((CONFIG, "--config.rounds=2.5"), r"config.rounds got '2.5'; expected a whole number"),
        ((CONFIG, "--config.method.ema=high"), r"config.method.ema got 'high'; expected a number"),
        ((CONFIG, "--config.drop_last=maybe"), r"config.drop_last got 'maybe'; expected True or False"),
        ((CONFIG, "--config.data.augmentation=flip,domainbd"), r"unknown data.augmentation 'domainbd'; .*'domainbed'"),
        ((CONFIG, "--config.data.crop_size=-1"), r"config.data.crop_size got -1; expected at least 0"),
        ((CONFIG, "--config.writers=tensorboard,wndb"), r"unknown writers 'wndb'; .*did you mean 'wandb'"),
        ((CONFIG, "--config.rounds=0"), r"config.rounds got 0; expected at least 1"),
        ((CONFIG, "--config.devices=-1"), r"config.devices got -1; expected at least 0"),
        ((CONFIG, "--config.data.validation=1.5"), r"data.validation got 1.5; expected a fraction"),
        ((CONFIG, "--config.data.protocol=every"), r"unknown data.protocol 'every'; .*did you mean 'every_domain'"),
        (
            (CONFIG, EVERY),
            r"data.target got 'r45', .*protocol=every_domain does not use it; expected '', or .*unseen_client",
        ),
        ((*EVERY_DOMAIN, "--config.data.shots=1"), r"data.shots got 1, .*=leave_one_out or unseen_client"),
        (
            (*EVERY_DOMAIN, "--config.data.clients=3"),
            r"data.clients got 3, .*expected 0, or .*=leave_one_out or labelled_server$",
        ),
        ((*EVERY_DOMAIN, "--config.selection=oracle"), r"'oracle', but .*no unseen domain.*last or validation"),
        ((*EVERY_DOMAIN, "--config.data.test=0.9"), r"data.test got 0.9 with .*validation=0.1; expected two fractions"),
        (
            (CONFIG, "--config.data.test=0.2"),
            r"data.test got 0.2, but config.data.protocol=leave_one_out does not use it",
        ),
        (
            (CONFIG, "--config.data.protocol=unseen_client", "--config.data.domains_per_client=2"),
            r"domains_per_client got 2, but config.data.protocol=unseen_client",
        ),
        (
            (CONFIG, "--config.data.homogeneity=2.0"),
            r"data.homogeneity got 2.0; expected a number from 0 .* or -1 for hFedF's split",
        ),
        (
            (CONFIG, "--config.data.homogeneity=0.5", "--config.data.domains_per_client=2"),
            r"domains_per_client got 2, but config.data.homogeneity=0.5 does not use it; expected 1",
        ),
        ((CONFIG, "--config.data.label_skew=-0.1"), r"label_skew got -0.1; expected a number above 0"),
        ((*EVERY_DOMAIN, "--config.data.label_skew=0.5"), r"protocol=every_domain does not use it; .*=leave_one_out"),
        ((CONFIG, "--config.client_axis=pmap"), r"unknown client_axis 'pmap'; .*did you mean 'map'"),
        ((CONFIG, "--config.seeds=0"), r"config.seeds got 0; expected at least 1"),
        ((CONFIG, "--config.seeds=two"), r"config.seeds got 'two'; expected a whole number"),
        (
            (CONFIG, "--config.seeds=2", "--config.seed=4294967295"),
            r"config.seed got 4294967295 with 2 seeds",
        ),
        ((CONFIG, "--config.seed_axis=chunk"), r"unknown seed_axis 'chunk'; expected one of: auto, map, vmap"),
        (
            (CONFIG, "--config.selection=best"),
            r"unknown selection 'best'; expected one of \d+ names; did you mean 'last'",
        ),
        ((CONFIG, "--config.model.name=inceptio"), r"unknown model.name 'inceptio'; .*did you mean 'inception'"),
        (
            (CONFIG, "--config.model=inception"),
            r"config.model .*expected one of its keys: model.dropout, model.frozen, model.frozen_copies",
        ),
        ((CONFIG, "--config.model.unit=dsee"), r"unknown model.unit 'dsee'; .*did you mean 'dse'"),
        ((CONFIG, "--config.model.width=0"), r"config.model.width got 0.0; expected a factor above 0"),
        ((CONFIG, "--config.model.width=inf"), r"config.model.width got inf; expected at most 64"),
        ((CONFIG, "--config.model.width=nan"), r"config.model.width got nan; expected at most 64"),
        ((CONFIG, "--config.model.width=1000000"), r"config.model.width got 1000000.0; expected at most 64"),
        ((CONFIG, "--config.data.image_size=100000"), r"config.data.image_size got 100000; expected at most 4096"),
        ((CONFIG, "--config.devices=3000"), r"config.devices got 3000; expected at most 256"),
        ((CONFIG, "--config.attack.clients=5000000000"), r"attack.clients got 5000000000; expected at most 100000"),
        ((CONFIG, "--config.probe.learning_rate=-1"), r"config.probe.learning_rate got -1.0; expected .* above 0"),
        *(
            ((CONFIG, f"--config.method.client_learning_rate={value}"), r"learning_rate got .*; expected .* above 0")
            for value in ("-1", "0", "nan", "inf", "-inf", "1e400")
        ),
        ((CONFIG, "--config.method.client_clip=-1"), r"client_clip got -1.0; expected a number from 0, such as 0.0"),
        ((CONFIG, "--config.method.client_momentum=1.5"), r"client_momentum got 1.5; expected a number from 0 to 1"),
        (
            (CONFIG, "--config.method.alignment_scope=leave"),
            r"unknown config.method.alignment_scope 'leave'; expected one of: leaf, tree; did you mean 'leaf'",
        ),
        ((CONFIG, "--config.method.hidden=0"), r"method.hidden got 0; expected a number from 1"),
        ((CONFIG, "--config.method.name=fedavgg"), r"unknown method 'fedavgg'; .*did you mean 'fedavg'"),
        ((CONFIG, "--config.method.name=fedavg"), r"start from --config=fedavg instead"),
        ((CONFIG, "--wokdir=x"), r"Unknown command line flag 'wokdir'.*workdir"),
        ((CONFIG, "rounds=3"), r"got 'rounds=3', which is no flag; expected --config.rounds=3$"),
        ((CONFIG, "--rounds=3"), r"got '--rounds=3', which is no flag; expected --config.rounds=3$"),
        ((CONFIG, "--target=r45"), r"which is no flag; expected --config.data.target=r45$"),
        ((CONFIG, "--local_epochs", "3"), r"which is no flag; expected --config.local_epochs=VALUE$"),
        (("fedavg",), r"got 'fedavg', which is no flag; expected --config=fedavg$"),
        (("hfedf:pacs", "--config.rounds=1"), r"got 'hfedf:pacs', which is no flag; expected --config=hfedf:pacs$"),
        (("fedavgg",), r"no --config given"),
        (("--method=fedavg", "--config.rounds=1"), r"which is no flag; expected --config=fedavg$"),
        ((CONFIG, "--data_dir=x"), r"which is no flag; expected --config.data.dir=x$"),
        (("--config", "fedavg", "--config.rounds", "1"), r"got '--config.rounds 1', two words; .* --config.rounds=1$"),
        (
            ("--config=fedavg", "--lr=0.1"),
            r"expected --config.adaptation.learning_rate=0.1 or --config.method.client_learning_rate=0.1",
        ),
        (("--config=fedavg", "method.learning_rate=1"), r"expected --config.method.client_learning_rate=1 or [^p]*$"),
        (
            ("--config=fedavg", "--config.method.learning_rate=1"),
            r"unknown config key 'method.learning_rate'; .* 'method.client_learning_rate' or 'method.server_learning_r",
        ),
        (
            ("--config=fedavg", "--config.lr=1"),
            r"key 'lr'; .* did you mean 'adaptation.learning_rate' or .*'probe.l",
        ),
        ((CONFIG, "--config.image=3"), r"unknown config key 'image'; .* did you mean 'data.image_size'\?"),
        ((CONFIG, "--workdir"), r"got --workdir without a value; expected --workdir=VALUE$"),
        ((CONFIG, "--workdir", "--config.rounds=2"), r"got --workdir without a value; expected --workdir=VALUE$"),
        ((CONFIG, "--config.round=3"), r"unknown config key 'round'; .* did you mean 'rounds'\?"),
        ((CONFIG, "--config.data.client=3"), r"unknown config key 'data.client'; .* did you mean 'data.clients'\?"),
        (
            (CONFIG, "--config.attack.strength=3"),
            r"strength got 3.0, but config.attack.kind=none does not use it;",
        ),
        (
            (CONFIG, *(f"--config.attack.{word}" for word in ("kind=sign_flip", "ids=2", "clients=3"))),
            r"clients got 3, but config.attack.ids=2 does not use it; expected 1",
        ),
        ((CONFIG, "--config.defence.hostile=2"), r"hostile got 2, but config.defence.rule=none does not use it;"),
        (
            (CONFIG, "--config.adaptation.scope=batch", "--config.adaptation.kind=none"),
            r"scope got 'batch', but .*=none does",
        ),
        (
            (CONFIG, "--config.adaptation.epochs=3"),
            r"epochs got 3, but config.adaptation.kind=own does .*=tent or shot$",
        ),
        (
            (CONFIG, "--config.adaptation.support=3", "--config.adaptation.kind=tent"),
            r"support got 3, but .* or .*=t3a$",
        ),
        (
            (CONFIG, "--config.pseudo_labels.epochs=3"),
            r"epochs got 3, but config.data.protocol=leave_one_out does not use",
        ),
        (
            (CONFIG, "--config.figures_resamples=9"),
            r"resamples got 9, but config.figures= does not use it; expected 1000",
        ),
        ((CONFIG, "--config.chunk=3"), r"chunk got 3, but config.client_axis=auto does not use it; expected 8"),
        ((CONFIG, "--config.data.dir"), r"config.data.dir got no value; expected data.dir=VALUE$"),
        ((CONFIG, "--config.model.dropout=-0.5"), r"model.dropout got -0.5; expected a rate from 0 to below 1, or -1"),
        ((CONFIG, "nothing=3"), r"got 'nothing=3', which is no flag; expected --config.KEY=VALUE"),
    ],
)
def test_a_mistake_is_one_line(arguments: tuple[str, ...], pattern: str) -> None:
    with pytest.raises(UserError, match=pattern) as caught:
        parsed(*arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "AttributeError: .*'get_config'"),
        ("def get_config(): return 5", "returned int; expected the ConfigDict"),
        ("import nosuchmodule", "ModuleNotFoundError: No module named 'nosuchmodule'"),
        ("def get_config(", "SyntaxError"),
        ("def get_config(): raise ZeroDivisionError('a\\nb')", "ZeroDivisionError: a b"),
        (KEYS + "    config.rounds = 'three'", r"cannot be run \(TypeError: .{,240}rounds.*three"),
        (
            KEYS + "    config.round = 3",
            r"cannot be run \(AttributeError: .*\"round\".{,240}\); expected a Python file",
        ),
        ("\0\1", "(SyntaxError|ValueError): source code string cannot contain null bytes"),
    ],
)
def test_a_file_that_is_no_config_is_refused_in_one_line(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where ml_collections keeps the names of the config file before.
    monkeypatch.delitem(sys.modules, "config_config", raising=False)
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(UserError, match=said) as caught:
        parsed(f"--config={tmp_path / 'mine.py'}")
    assert "\n" not in str(caught.value)


def test_a_name_without_a_file_is_the_packages_own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_file = parsed(CONFIG, "--config.rounds=7")
    monkeypatch.chdir(tmp_path)
    assert parsed("--config=hfedf", "--config.rounds=7") == by_file
    assert parsed("--config", "hfedf", "--config.rounds=7") == by_file
    assert parsed("--config=hfedf:pacs")[0].data.name == "pacs"
    with pytest.raises(UserError, match=r"there is no config file 'configs/fedavg.py'; .*such as --config=fedavg$"):
        parsed("--config=configs/fedavg.py")


def test_a_file_stays_a_file_wherever_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "config_config", raising=False)
    own = tmp_path / "mine.py"
    own.write_text("from fdgjax.config import make_config\ndef get_config(): return make_config('moon', 'pacs')\n")
    config, workdir = parsed("--config", str(own), "--workdir", str(tmp_path / "run"))
    assert (config.method.name, config.data.name, workdir) == ("moon", "pacs", tmp_path / "run")


def test_values_arrive_with_their_types() -> None:
    config, workdir = parsed(
        CONFIG, "--config.rounds=7", "--config.method.ema=1", "--config.drop_last", "--workdir=somewhere"
    )
    assert (config.rounds, config.method.ema, config.drop_last) == (7, 1.0, True)
    assert isinstance(config.method.ema, float)
    assert workdir == Path("somewhere")


def test_parsing_leaves_no_global_behind() -> None:
    assert parsed(CONFIG, "--config.rounds=7")[0].rounds == 7
    assert parsed(CONFIG)[0].rounds != 7


def test_another_experiment_gets_another_default_folder() -> None:
    others = ((), ("--config.seed=1",), ("--config.batch_size=8",), ("--config.seeds=2",), ("--config.seeds=3",))
    folders = [default_workdir(parsed(CONFIG, *more)[0]) for more in others]
    assert len(set(folders)) == 5
    assert "-s0-2-" in folders[-1]
    assert "-every_domain-" in default_workdir(parsed(*EVERY_DOMAIN)[0])
    moved = parsed(CONFIG, "--config.data.dir=elsewhere", "--config.data.cache_dir=there")[0]
    assert default_workdir(moved) == default_workdir(parsed(CONFIG)[0])


def test_a_key_that_is_added_to_the_package_changes_no_default_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    before = default_workdir(parsed(CONFIG, "--config.rounds=7")[0])
    plain = to_plain

    def with_another(config: Config) -> dict[str, Any]:
        return plain(config) | {"new_key": 3}

    monkeypatch.setattr("fdgjax.config.make.to_plain", with_another)
    assert default_workdir(parsed(CONFIG, "--config.rounds=7")[0]) == before


PAIRS = [*((method, next(iter(DATASETS))) for method in METHODS), *(("hfedf", dataset) for dataset in DATASETS)]


@pytest.mark.parametrize(("method", "dataset"), sorted(set(PAIRS)))
def test_every_method_and_every_data_set_has_a_config(method: str, dataset: str) -> None:
    config, _ = parsed(f"--config={ROOT}/configs/{method}.py:{dataset}")
    assert (config.method.name, config.data.name) == (method, dataset)
    assert isinstance(config.method, METHODS[method].hyper)


@pytest.mark.slow
def test_a_cpu_is_split_only_if_nothing_has_started_jax_before() -> None:
    program = (
        "import sys, jax; from fdgjax.cli.train import parse, prepare_cpu; "
        f"prepare_cpu(*parse(['fdgjax', {CONFIG!r}, '--config.devices=3'])); print(len(jax.devices('cpu')))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "3\n", done.stderr


@pytest.mark.slow
def test_the_program_ends_with_status_2_and_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fdgjax.main", CONFIG, "--config.data.target=r50", f"--workdir={tmp_path / 'run'}"]
    done = subprocess.run(
        [*command, f"--config.data.cache_dir={tmp_path}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("fdgjax: unknown target domain 'r50'; expected one of: r0, r15")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()

import numpy as np
import pytest

from lawful.data import Calendar, detect_seasons, fill_missing, infer_calendar, parse_dates, read_series, series_of


def write(folder, dates, values, *, header="date,sales", name="sales.csv"):
    path = folder / name
    rows = [f"{a},{b}" for a, b in zip(dates, values, strict=True)]
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def days(first, count, step=1):
    start = np.datetime64(first)
    return [str(start + step * i) for i in range(count)]


@pytest.mark.parametrize(
    ("dates", "name", "future"),
    [
        (days("2024-02-26", 3), "daily", ["2024-02-29", "2024-03-01"]),
        (days("2024-02-05", 3, 7), "weekly", ["2024-02-26", "2024-03-04"]),
        (days("2024-02-05", 3, 10), "every 10 days", ["2024-03-06", "2024-03-16"]),
        (["2024-01-01", "2024-02-01", "2024-03-01"], "monthly", ["2024-04-01", "2024-05-01"]),
        (["2023-11-30", "2023-12-31", "2024-01-31"], "monthly", ["2024-02-29", "2024-03-31"]),
        (["2023-11-30", "2023-12-30", "2024-01-30"], "monthly", ["2024-02-29", "2024-03-30"]),
        (["2024-01-31", "2024-02-29", "2024-03-29", "2024-04-30"], "monthly", ["2024-05-31", "2024-06-28"]),
        (["Jan 2024", "Feb 2024", "Mar 2024"], "monthly", ["2024-04", "2024-05"]),
        (["2023Q3", "2023Q4", "2024Q1"], "quarterly", ["2024-04", "2024-07"]),
        (["2020-01-01", "2021-01-01", "2022-01-01"], "yearly", ["2023-01-01", "2024-01-01"]),
        (
            ["2024-03-01 22:00", "2024-03-01 23:00", "2024-03-02 00:00"],
            "hourly",
            ["2024-03-02 01:00", "2024-03-02 02:00"],
        ),
        (
            ["2024-03-01 23:30:02", "2024-03-01 23:45:00", "2024-03-02 00:00:01"],
            "every 15 minutes",
            ["2024-03-02 00:15", "2024-03-02 00:30"],
        ),
        (
            [f"2024-03-01T{hour}:00:00+02:00" for hour in (21, 22, 23)],
            "hourly",
            ["2024-03-02 00:00+02:00", "2024-03-02 01:00+02:00"],
        ),
        (
            [day for day in days("2024-03-01", 29) if np.is_busday(day)],
            "every business day",
            ["2024-04-01", "2024-04-02"],
        ),
    ],
)
def test_frequency_and_future_dates(tmp_path, dates, name, future):
    series = read_series(write(tmp_path, dates, range(len(dates))))
    assert series.calendar.name == name
    assert series.values.tolist() == list(range(len(dates)))
    assert series.dates(2, first=len(series)) == future
    assert Calendar.from_json(series.calendar.to_json()) == series.calendar


def test_missing_dates_become_missing_values(tmp_path):
    dates = days("2024-01-01", 10)
    series = read_series(write(tmp_path, [*dates[:3], *dates[5:]], range(8)))
    assert np.flatnonzero(np.isnan(series.values)).tolist() == [3, 4]
    assert any("2 of 10 values are missing" in note for note in series.notes)


def test_holidays_are_missing_business_days(tmp_path):
    dates = [day for day in days("2024-03-01", 40) if np.is_busday(day) and day != "2024-03-29"]
    series = read_series(write(tmp_path, dates, range(len(dates))))
    assert series.calendar.name == "every business day"
    assert int(np.isnan(series.values).sum()) == 1


def test_rows_are_sorted_by_date(tmp_path):
    series = read_series(write(tmp_path, days("2024-01-01", 5)[::-1], range(5)))
    assert series.values.tolist() == [4, 3, 2, 1, 0]
    assert "sorted the rows by date" in series.notes


def test_missing_values_at_the_ends_are_left_out(tmp_path):
    series = read_series(write(tmp_path, days("2024-01-01", 6), ["", 1, 2, "NA", 4, ""]))
    assert np.isnan(series.values).tolist() == [False, False, True, False]
    assert series.dates(1) == ["2024-01-02"]


@pytest.mark.parametrize(
    ("rows", "header", "said"),
    [
        (["2024-01-01,1", "2024-01-02,2", "2024-01-09,3", "2024-03-04,1"], "date,y", "irregular steps"),
        (["2024-01-01,1", "2024-01-01,2", "2024-01-02,3"], "date,y", "several rows with the date 2024-01-01"),
        (["2024-01-01,red", "2024-01-02,blue"], "date,y", "no numbers in any column"),
        (["a,1", "b,inf", "c,2"], "name,y", "infinite value in row 2"),
        ([f"2024-01-{i:02},{i}" for i in range(1, 30)] + ["soon,30"], "date,y", "expected a date at line 31"),
        ([f"2024-01-{i:02},{i if i % 3 == 0 else ''}" for i in range(1, 30)], "date,y", "at most half may be missing"),
    ],
    ids=["irregular", "repeated", "text", "infinite", "bad date", "missing"],
)
def test_unusable_series_are_refused(tmp_path, rows, header, said):
    path = tmp_path / "bad.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    with pytest.raises(ValueError, match=said):
        read_series(path)


def test_target_and_date_column_are_chosen_and_named(tmp_path):
    path = tmp_path / "two.csv"
    path.write_text("row,day,made,sold\n" + "".join(f"{i},2024-01-0{i},{10 * i},{i * i}\n" for i in range(1, 6)))
    series = read_series(path)
    assert (series.name, series.values.tolist()) == ("sold", [1, 4, 9, 16, 25])
    assert any("target: column 'sold'; not used: 'row', 'made'" in note for note in series.notes)
    assert read_series(path, target="made").values.tolist() == [10, 20, 30, 40, 50]
    with pytest.raises(ValueError, match=r"target must be a column of two\.csv, got 'sol'"):
        read_series(path, target="sol")
    with pytest.raises(ValueError, match="date_column must have dates"):
        read_series(path, date_column="made")
    with pytest.raises(ValueError, match="target must be a column with numbers: got '2024-01-01'"):
        read_series(path, target="day")


def test_years_are_dates(tmp_path):
    series = read_series(write(tmp_path, range(1990, 1995), [3, 1, 4, 1, 5], header="year,births"))
    assert (series.name, series.calendar.name) == ("births", "yearly")
    assert series.dates(1, first=5) == ["1995"]


def test_arrays_are_series(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(5))
    series = read_series(tmp_path / "x.npy")
    assert series.values.tolist() == [0, 1, 2, 3, 4]
    assert series.values.flags.writeable  # a mapped file is not, and PyTorch warns
    np.save(tmp_path / "float.npy", np.arange(5.0))
    assert read_series(tmp_path / "float.npy").values.flags.writeable


@pytest.mark.parametrize("field", ["start", "unit", "step", "day", "precision", "offset"])
def test_a_malformed_calendar_is_refused(field):
    calendar = Calendar("2024-01-01", "month").to_json()
    with pytest.raises(ValueError, match=f"calendar.{field}"):
        Calendar.from_json({**calendar, field: "nonsense"})


def test_dates_that_are_regular_up_to_gaps():
    calendar, steps = infer_calendar(parse_dates(["2024-01-01 00:00", "2024-01-01 02:00", "2024-01-01 03:00"]))
    assert (calendar.name, steps.tolist()) == ("hourly", [0, 2, 3])


def example_series(kind, rng, n=240):
    t = np.arange(n)
    noise = rng.standard_normal(n)
    pattern = rng.standard_normal(12)[t % 12]
    return {
        "noise": noise,
        "trend": 0.1 * t + noise,
        "random walk": np.cumsum(noise),
        "season": 2 * pattern + noise,
        "growing season": np.exp(0.01 * t + 0.2 * pattern + 0.05 * noise),
        "season on a random walk": np.cumsum(noise) + 5 * pattern,
    }[kind]


@pytest.mark.parametrize(
    ("kind", "seasons"),
    [
        ("noise", ()),
        ("trend", ()),
        ("random walk", ()),
        ("season", (12,)),
        ("growing season", (12,)),
        ("season on a random walk", (12,)),
    ],
)
def test_season_is_detected(kind, seasons):
    rng = np.random.default_rng(0)
    found = [detect_seasons(example_series(kind, rng)) for _ in range(10)]
    assert found.count(seasons) >= 9, found


def test_season_is_detected_with_missing_values_and_outliers():
    rng = np.random.default_rng(1)
    x = example_series("season", rng)
    x[rng.random(len(x)) < 0.2] = np.nan
    x[50] = 1000.0
    assert detect_seasons(x) == (12,)


def test_week_and_day_are_nested_seasons():
    t, rng = np.arange(24 * 7 * 6), np.random.default_rng(0)
    day = rng.standard_normal(24)[t % 24]
    weekend = (t // 24 % 7 >= 5) * rng.standard_normal(24)[t % 24]
    assert detect_seasons(3 * day + 2 * weekend + 0.3 * rng.standard_normal(len(t)), usual=(24, 168)) == (24, 168)


def test_usual_period_needs_less_evidence():
    t = np.arange(30)
    x = np.sin(2 * np.pi * t / 12)
    assert (detect_seasons(x), detect_seasons(x, usual=(12,))) == ((), (12,))


def test_constant_series_have_no_season():
    assert detect_seasons(np.full(100, 7.0)) == ()
    assert detect_seasons(np.arange(3.0)) == ()


def test_missing_values_are_filled_with_their_season():
    x = np.tile([0.0, 10.0, 5.0], 10) + np.arange(30)
    gaps = x.copy()
    gaps[[4, 10, 11, 20]] = np.nan
    np.testing.assert_allclose(fill_missing(gaps, season=3), x, atol=1.0)
    with pytest.raises(ValueError, match="not missing"):
        fill_missing(np.array([np.nan]))
    with pytest.raises(ValueError, match="has no values"):
        series_of(np.array([np.nan]))

"""The first page: one sentence, and the evidence for it.

- `span`: the last 24 hours, and the 24 before them.
- `day`: how many runs, by hour, agent and outcome; the five figures and the chart.
- `chart`, `deploys`: the day as bars; the versions that began in it.
- `now`: what is under way or held at this moment.
- `last_runs`: the last runs of triggers: strips, rates and durations.
- `causes`: what fails, one row for each cause, with the button that ends it.
- `waiting`: what waits for a person.
- `agents`, `doors`, `coming`: the agents, the sources, and what will wake next.
- `changes`: what people, commands and deploys changed since yesterday.
- `first`: an installation without runs.
- `verdict`: the sentence.
- `page`: all of them together; `acts`: what the buttons do.

Each statement reads an index, and no more than a fixed number of its rows.
"""

// What every page needs: times, buttons that call the API, dialogs, keyboard, colours, live events.

import "./times.js";
import "./actions.js";
import "./keyboard.js";
import "./theme.js";
import "./live.js";
